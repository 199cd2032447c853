// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
#include "stable_abi.h"

namespace {

PyObject* compiler(PyObject*, PyObject*) {
#ifdef __clang__
  return PyUnicode_FromString("clang " __clang_version__);
#else
  return PyUnicode_FromString("gcc " __VERSION__);
#endif
}

PyMethodDef methods[] = {
    {"compiler", compiler, METH_NOARGS, "Return the host compiler's name and version."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef module = {PyModuleDef_HEAD_INIT, "_host", nullptr, -1,     methods,
                      nullptr,               nullptr, nullptr, nullptr};

}  // namespace

PyMODINIT_FUNC PyInit__host() { return PyModule_Create(&module); }
