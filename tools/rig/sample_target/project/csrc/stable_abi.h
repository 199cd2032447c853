// SPDX-License-Identifier: Apache-2.0
// SPDX-FileCopyrightText: Copyright contributors to the vLLM project
// The part of Python's stable ABI that the bindings use: Python.h where it is installed,
// else declarations of the same functions (a system Python comes without its headers).
// Layouts and signatures: https://docs.python.org/3/c-api/stable.html
#pragma once

#if __has_include(<Python.h>)
  #include <Python.h>
#else
  #include <cstddef>

extern "C" {

struct PyObject;
using PyCFunction = PyObject* (*)(PyObject*, PyObject*);

struct PyMethodDef {
  const char* ml_name;
  PyCFunction ml_meth;
  int ml_flags;
  const char* ml_doc;
};

struct PyModuleDef_Base {
  std::ptrdiff_t ob_refcnt;
  void* ob_type;
  PyObject* (*m_init)();
  std::ptrdiff_t m_index;
  PyObject* m_copy;
};

struct PyModuleDef {
  PyModuleDef_Base m_base;
  const char* m_name;
  const char* m_doc;
  std::ptrdiff_t m_size;
  PyMethodDef* m_methods;
  void* m_slots;
  void* m_traverse;
  void* m_clear;
  void* m_free;
};

PyObject* PyModule_Create2(PyModuleDef*, int);
PyObject* Py_BuildValue(const char*, ...);
PyObject* PyUnicode_FromString(const char*);
void PyErr_SetString(PyObject*, const char*);
extern PyObject* PyExc_RuntimeError;

}

  #define METH_NOARGS 0x0004
  #define PyModuleDef_HEAD_INIT {1, nullptr, nullptr, 0, nullptr}
  #define PyModule_Create(def) PyModule_Create2(def, 3)
  #define PyMODINIT_FUNC extern "C" __attribute__((visibility("default"))) PyObject*
#endif
