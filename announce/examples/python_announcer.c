// A CPython module, for 3.11 and later, that gives each Python function a piece of machine code of its own and announces it: then Python
// functions have names, calls and source lines in a trace. CPython's own `-X perf` does that without saying what ends, and has no interface
// for others. cc -O2 -shared -fPIC $(python3-config --includes) -I.. python_announcer.c ../ptd_announce.c -o python_announcer.so
// (README.md)
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#if PY_VERSION_HEX < 0x030c0000
#define Py_BUILD_CORE /* 3.11 has no function that returns the code of a frame */
#include <internal/pycore_frame.h>
#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#define PyUnstable_Code_GetExtra _PyCode_GetExtra
#define PyUnstable_Code_SetExtra _PyCode_SetExtra
static PyCodeObject* code_of(struct _PyInterpreterFrame* frame) { return (PyCodeObject*)Py_NewRef((PyObject*)frame->f_code); }
#else
static PyCodeObject* code_of(struct _PyInterpreterFrame* frame) { return (PyCodeObject*)PyUnstable_InterpreterFrame_GetCode(frame); }
#endif

#include <ptd_announce.h>

/* Calls its fourth argument with the first three. */
static const unsigned char kCode[] = {
#if defined(__x86_64__)
    0x48, 0x83, 0xec, 0x08, /* sub $8, %rsp */
    0xff, 0xd1,             /* call *%rcx */
    0x48, 0x83, 0xc4, 0x08, /* add $8, %rsp */
    0xc3,                   /* ret */
#elif defined(__aarch64__)
    0xfd, 0x7b, 0xbf, 0xa9, /* stp x29, x30, [sp, #-16]! */
    0xfd, 0x03, 0x00, 0x91, /* mov x29, sp */
    0x60, 0x00, 0x3f, 0xd6, /* blr x3 */
    0xfd, 0x7b, 0xc1, 0xa8, /* ldp x29, x30, [sp], #16 */
    0xc0, 0x03, 0x5f, 0xd6, /* ret */
#else
#error "no code for this processor"
#endif
};
enum { kPieceBytes = 32, kAreaBytes = 1 << 16, kPieces = kAreaBytes / kPieceBytes };

typedef PyObject* (*Trampoline)(PyThreadState*, struct _PyInterpreterFrame*, int, _PyFrameEvalFunction);

/* A piece of code, of one code object at a time. All state is under the GIL. */
struct piece {
  const unsigned char* code;
  char *name, *file; /* NULL: free */
  uint32_t line;
  struct piece* next_free;
};
struct area {
  struct piece pieces[kPieces];
  struct area* next;
};

static struct area* areas;
static struct piece* free_pieces;
static uint32_t runtime;
static Py_ssize_t extra_index;

static void announce(const struct piece* piece, uint8_t kind, uint16_t flags) {
  const struct ptd_announce_line line = {0, piece->line};
  const struct ptd_announcement what = {.runtime = runtime,
                                        .kind = kind,
                                        .phase = PTD_ANNOUNCE_END,
                                        .flags = flags,
                                        .address = (uintptr_t)piece->code,
                                        .size = sizeof kCode,
                                        .code = kind == PTD_ANNOUNCE_LOAD ? piece->code : NULL,
                                        .name = piece->name,
                                        .file = piece->file,
                                        .lines = &line,
                                        .line_count = kind == PTD_ANNOUNCE_LOAD};
  ptd_announce_code(&what);
}

static void relist(void* user) {
  (void)user;
  for (const struct area* area = areas; area != NULL; area = area->next)
    for (int i = 0; i < kPieces; ++i)
      if (area->pieces[i].name != NULL) announce(&area->pieces[i], PTD_ANNOUNCE_LOAD, PTD_ANNOUNCE_RELISTED);
}

/* The code is written once: pieces differ in their addresses only. */
static int add_area(void) {
  struct area* area = calloc(1, sizeof *area);
  unsigned char* memory = mmap(NULL, kAreaBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (area == NULL || memory == MAP_FAILED) return free(area), 0;
  for (int i = 0; i < kPieces; ++i) memcpy(memory + i * kPieceBytes, kCode, sizeof kCode);
  if (mprotect(memory, kAreaBytes, PROT_READ | PROT_EXEC) != 0) return free(area), 0;
  for (int i = kPieces - 1; i >= 0; --i) {
    area->pieces[i].code = memory + i * kPieceBytes;
    area->pieces[i].next_free = free_pieces;
    free_pieces = &area->pieces[i];
  }
  __builtin___clear_cache((char*)memory, (char*)memory + kAreaBytes);
  area->next = areas;
  areas = area;
  return 1;
}

static char* copy_text(PyObject* text) {
  const char* utf8 = PyUnicode_AsUTF8(text);
  if (utf8 == NULL) PyErr_Clear();
  return strdup(utf8 != NULL ? utf8 : "?");
}

static void release(void* data);

/* NULL: the frame runs without one. `throwing`: an exception is set, which no other may replace. */
static struct piece* piece_of(PyCodeObject* code, int throwing) {
  void* known = NULL;
  if (PyUnstable_Code_GetExtra((PyObject*)code, extra_index, &known) == 0 && known != NULL) return known;
  if (throwing || (free_pieces == NULL && !add_area())) return NULL;
  struct piece* piece = free_pieces;
  free_pieces = piece->next_free;
  piece->name = copy_text(code->co_qualname);
  piece->file = copy_text(code->co_filename);
  piece->line = (uint32_t)code->co_firstlineno;
  announce(piece, PTD_ANNOUNCE_LOAD, 0);
  if (PyUnstable_Code_SetExtra((PyObject*)code, extra_index, piece) == 0) return piece;
  PyErr_Clear();
  release(piece);
  return NULL;
}

/* The code object is gone. */
static void release(void* data) {
  struct piece* piece = data;
  if (piece == NULL) return;
  announce(piece, PTD_ANNOUNCE_UNLOAD, 0);
  free(piece->name);
  free(piece->file);
  piece->name = piece->file = NULL;
  piece->next_free = free_pieces;
  free_pieces = piece;
}

static PyObject* evaluate(PyThreadState* thread, struct _PyInterpreterFrame* frame, int throwing) {
  PyCodeObject* code = code_of(frame); /* kept: the end of the frame may free it, and its piece returns after that */
  const struct piece* piece = piece_of(code, throwing);
  Trampoline call = NULL;
  if (piece != NULL) memcpy(&call, &piece->code, sizeof call);
  PyObject* result =
      call != NULL ? call(thread, frame, throwing, _PyEval_EvalFrameDefault) : _PyEval_EvalFrameDefault(thread, frame, throwing);
  Py_DECREF(code);
  return result;
}

/* Without a listener, CPython evaluates frames itself. */
static PyObject* poll(PyObject* module, PyObject* arguments) {
  (void)module, (void)arguments;
  PyInterpreterState* interpreter = PyInterpreterState_Get();
  const int on = _PyInterpreterState_GetEvalFrameFunc(interpreter) == evaluate, wanted = ptd_announce_enabled();
  if (on != wanted) _PyInterpreterState_SetEvalFrameFunc(interpreter, wanted ? evaluate : _PyEval_EvalFrameDefault);
  ptd_announce_poll(runtime);
  return PyBool_FromLong(wanted);
}

static PyMethodDef functions[] = {
    {"poll", poll, METH_NOARGS, "Announces functions if, and only if, somebody listens now; returns whether. Called by the import."},
    {NULL, NULL, 0, NULL},
};
static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "python_announcer", "Python functions in traces.", -1, functions, NULL, NULL, NULL, NULL};

PyMODINIT_FUNC PyInit_python_announcer(void) {
  PyObject* module = PyModule_Create(&definition);
  extra_index = PyUnstable_Eval_RequestCodeExtraIndex(release);
  if (module == NULL || extra_index < 0) return NULL;
  runtime = ptd_announce_register("CPython", relist, NULL);
  Py_DECREF(poll(module, NULL));
  return module;
}
