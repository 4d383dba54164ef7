/* An op package for the CPU, interface 1.4, float32 caches only: PACKAGE::OP, each call written into the file that OP_LOG names.
   -DVERSION=3 -DFAIL_INIT -DFAIL_CREATE -DFAIL_RUN=N -DNO_CREATE make it bad: ops fail behind the first N runs. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_op_package.h"

#ifndef PACKAGE
#define PACKAGE "LLaMAPackage"
#endif
#ifndef OP
#define OP "PDKVCacheUpdate"
#endif
#ifndef VERSION
#define VERSION 1
#endif

static void note(const char *what) {
  const char *path = getenv("OP_LOG");
  FILE *file = path ? fopen(path, "a") : NULL;
  if (file) {
    fprintf(file, "%s\n", what);
    fclose(file);
  }
}

/* Rows [to, to + n) of `out` from rows [from, from + n) of `new`; rows of keys are columns. */
static void put(Tensor *past, Tensor *new, Tensor *out, int keys, const int32_t rule[4]) {
  uint32_t heads = past->dims[1], d = past->dims[keys ? 2 : 3], p = past->dims[keys ? 3 : 2], rows = new->dims[keys ? 3 : 2];
  float *to = out->data, *of = new->data;
  if (past->data != out->data) memcpy(out->data, past->data, sizeof(float) * heads * d * p);
  for (uint32_t h = 0; rule[3] && h < heads; h++)
    for (uint32_t i = 0; i < d; i++)
      for (int32_t j = 0; j < rule[2]; j++) {
        uint32_t a = rule[0] + j, b = rule[1] + j;
        if (keys) to[(h * d + i) * p + a] = of[(h * d + i) * rows + b];
        else to[(h * p + a) * d + i] = of[(h * rows + b) * d + i];
      }
}

static uint64_t run(void *data) {
  Node *node = data;
#ifdef FAIL_RUN
  static int done = 0;
  if (done++ >= FAIL_RUN) return 3200;
#endif
  if (node->n_in == 9) {
    int32_t rule[4];
    for (int i = 0; i < 4; i++) rule[i] = *(int32_t *)node->in[5 + i]->data;
    put(node->in[1], node->in[3], node->out[0], 1, rule);
    put(node->in[2], node->in[4], node->out[1], 0, rule);
  }
  note("run");
  return 0;
}

static uint64_t create(void *infra, void *node, void **made) {
  (void)infra;
#ifdef FAIL_CREATE
  return 1000;
#endif
  Impl *impl = malloc(sizeof *impl);
  impl->run = run;
  impl->node = node;
  *made = impl;
  note("create");
  return 0;
}

static uint64_t free_impl(void *made) {
  free(made);
  note("free");
  return 0;
}

static uint64_t init(void *infra) {
  (void)infra;
#ifdef FAIL_INIT
  return 3100;
#endif
  note("init");
  return 0;
}

static uint64_t terminate(void) {
  note("terminate");
  return 0;
}

static uint64_t info(const Info **out) {
  static const char *ops[] = {OP};
  static const Info own = {PACKAGE, ops, NULL, 1, NULL, 0, {NULL}, {0}};
  *out = &own;
  return 0;
}

uint64_t LLaMAPackageInterfaceProvider(Interface *to) {
  memset(to, 0, sizeof *to);
  to->major = VERSION;
  to->minor = VERSION == 1 ? 4 : 0;
  to->slots[0] = (void *)init;
  to->slots[1] = (void *)terminate;
  to->slots[2] = (void *)info;
#ifndef NO_CREATE
  to->slots[4] = (void *)create;
#endif
  to->slots[5] = (void *)free_impl;
  return 0;
}

uint64_t OtherProvider(Interface *to) { return LLaMAPackageInterfaceProvider(to); }
