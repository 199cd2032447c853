// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
#include "kernels.h"
#include "stable_abi.h"

namespace {

PyObject* compiled(PyObject*, PyObject*) {
  return Py_BuildValue("ss", rig_sample::arch_list(), rig_sample::nvcc_version());
}

PyObject* prove(PyObject*, PyObject*) {
  rig_sample::Proof proof;
  rig_sample::prove_narrow(proof);
  if (proof.error.empty()) rig_sample::prove_wide(proof);
  if (!proof.error.empty()) {
    PyErr_SetString(PyExc_RuntimeError, proof.error.c_str());
    return nullptr;
  }
  return Py_BuildValue("sii", proof.device.c_str(), proof.sm, proof.checked);
}

PyMethodDef methods[] = {
    {"compiled", compiled, METH_NOARGS, "Return the arch list and nvcc's version."},
    {"prove", prove, METH_NOARGS, "Run the kernels and compare their results."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_C",    nullptr, -1,     methods,
                      nullptr,               nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__C() { return PyModule_Create(&module); }
