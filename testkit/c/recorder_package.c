/* An op package for the CPU, interface 1.4: PACKAGE::OP, which writes the parameters it is given into the file LOG, one a line:
   "config" when a node is validated, "node" when the op is made, "run" when it runs (from the node it was made with). A node
   without parameters gives a line each time as well.
   Structs of the core API are laid out as QnnTypes.h has them on LP64. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cpu_op_package.h"

#ifndef PACKAGE
#define PACKAGE "Recorder"
#endif
#ifndef OP
#define OP "Seen"
#endif

/* Of the core API: what `validateOpConfig` gets. */
typedef struct {
  uint32_t version;
  struct {
    uint32_t id;
    const char *name;
    uint32_t kind, format, type;
    uint8_t encoding[40] __attribute__((aligned(8)));
    uint32_t rank;
    uint32_t *dims;
    uint32_t memory;
    void *data;
    uint32_t n_bytes;
  } v1;
  uint64_t v2_rest[3];
} CoreTensor;

typedef struct {
  uint32_t kind;
  const char *name;
  union {
    struct {
      uint32_t type;
      union {
        float f32;
        double f64;
        int64_t i64;
        int32_t i32;
        uint64_t u64;
        uint32_t u32;
        uint8_t bool8;
        const char *text;
      };
    } scalar;
    CoreTensor tensor;
  };
} CoreParam;

typedef struct {
  uint32_t version;
  const char *name, *package, *type;
  uint32_t n_params;
  CoreParam *params;
  uint32_t n_in;
  CoreTensor *in;
  uint32_t n_out;
  CoreTensor *out;
} Config;

_Static_assert(sizeof(CoreTensor) == 144 && sizeof(CoreParam) == 160 && sizeof(Config) == 80, "LP64");

static void tensor(FILE *to, uint32_t type, uint32_t rank, const uint32_t *dims, const void *data) {
  size_t n = 1;
  fprintf(to, "tensor %#06x [", type);
  for (uint32_t i = 0; i < rank; i++) {
    fprintf(to, "%s%u", i ? "," : "", dims[i]);
    n *= dims[i];
  }
  fprintf(to, "]");
  for (size_t i = 0; i < n; i++) switch (type) {
      case 0x0008: fprintf(to, " %d", ((const int8_t *)data)[i]); break;
      case 0x0016: fprintf(to, " %d", ((const int16_t *)data)[i]); break;
      case 0x0032: fprintf(to, " %d", ((const int32_t *)data)[i]); break;
      case 0x0064: fprintf(to, " %lld", (long long)((const int64_t *)data)[i]); break;
      case 0x0108: case 0x0508: fprintf(to, " %u", ((const uint8_t *)data)[i]); break;
      case 0x0132: fprintf(to, " %u", ((const uint32_t *)data)[i]); break;
      case 0x0164: fprintf(to, " %llu", (unsigned long long)((const uint64_t *)data)[i]); break;
      case 0x0232: fprintf(to, " %.9g", ((const float *)data)[i]); break;
      default: fprintf(to, " ?");
    }
  fprintf(to, "\n");
}

static void note_node(const char *when, const Node *node) {
  FILE *to = fopen(LOG, "a");
  if (node->n_params == 0) fprintf(to, "%s\n", when);
  for (uint32_t i = 0; i < node->n_params; i++) {
    const Param *p = node->params[i];
    fprintf(to, "%s %s ", when, p->name);
    if (p->type == 0) fprintf(to, "number %.17g\n", p->number);
    else if (p->type == 1) tensor(to, p->tensor->type, p->tensor->rank, p->tensor->dims, p->tensor->data);
    else if (p->type == 2) fprintf(to, "text `%s`\n", p->text);
    else fprintf(to, "?\n");
  }
  fclose(to);
}

static uint64_t validate(Config config) {
  FILE *to = fopen(LOG, "a");
  if (config.n_params == 0) fprintf(to, "config\n");
  for (uint32_t i = 0; i < config.n_params; i++) {
    const CoreParam *p = &config.params[i];
    fprintf(to, "config %s ", p->name);
    if (p->kind == 1) {
      tensor(to, p->tensor.v1.type, p->tensor.v1.rank, p->tensor.v1.dims, p->tensor.v1.data);
      continue;
    }
    fprintf(to, "scalar %#06x ", p->scalar.type);
    switch (p->scalar.type) {
      case 0x0032: fprintf(to, "%d\n", p->scalar.i32); break;
      case 0x0064: fprintf(to, "%lld\n", (long long)p->scalar.i64); break;
      case 0x0132: fprintf(to, "%u\n", p->scalar.u32); break;
      case 0x0164: fprintf(to, "%llu\n", (unsigned long long)p->scalar.u64); break;
      case 0x0232: fprintf(to, "%.9g\n", p->scalar.f32); break;
      case 0x0264: fprintf(to, "%.17g\n", p->scalar.f64); break;
      case 0x0508: fprintf(to, "%u\n", p->scalar.bool8); break;
      case 0x0608: fprintf(to, "`%s`\n", p->scalar.text); break;
      default: fprintf(to, "?\n");
    }
  }
  fclose(to);
  return 0;
}

static uint64_t run(void *data) {
  note_node("run", data);
  return 0;
}

static uint64_t create(void *infra, void *node, void **made) {
  (void)infra;
  Impl *impl = malloc(sizeof *impl);
  impl->run = run;
  impl->node = node;
  *made = impl;
  note_node("node", node);
  return 0;
}

static uint64_t free_impl(void *made) {
  free(made);
  return 0;
}

static uint64_t init(void *infra) {
  (void)infra;
  return 0;
}

static uint64_t terminate(void) { return 0; }

static uint64_t info(const Info **out) {
  static const char *ops[] = {OP};
  static const Info own = {PACKAGE, ops, NULL, 1, NULL, 0, {NULL}, {0}};
  *out = &own;
  return 0;
}

uint64_t RecorderProvider(Interface *to) {
  memset(to, 0, sizeof *to);
  to->major = 1;
  to->minor = 4;
  to->slots[0] = (void *)init;
  to->slots[1] = (void *)terminate;
  to->slots[2] = (void *)info;
  to->slots[3] = (void *)validate;
  to->slots[4] = (void *)create;
  to->slots[5] = (void *)free_impl;
  return 0;
}
