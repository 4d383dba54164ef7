/* What an op package for the CPU is given and gives, for packages of tests: structs laid out as CPU/QnnCpuOpPackage.h and
   QnnOpPackage.h (interface 1.4) have them on LP64. */
#ifndef CPU_OP_PACKAGE_H
#define CPU_OP_PACKAGE_H

#include <stddef.h>
#include <stdint.h>

typedef struct {
  uint32_t format, type, rank;
  uint32_t *max_dims, *dims;
  void *data;
  uint8_t encoding[40];
} Tensor;

typedef struct {
  uint32_t type;
  const char *name;
  union {
    double number;
    char *text;
    Tensor *tensor;
  };
} Param;

typedef struct {
  const char *name, *package, *type;
  uint32_t n_params;
  Param **params;
  uint32_t n_in;
  Tensor **in;
  uint32_t n_out;
  Tensor **out;
} Node;

typedef struct {
  uint64_t (*run)(void *);
  void *node;
} Impl;

typedef struct {
  const char *package;
  const char *const *ops;
  const void *infos;
  uint32_t n_ops;
  const void *optimizations;
  uint32_t n_optimizations;
  const void *rest[4];
  size_t reserved[12];
} Info;

typedef struct {
  uint32_t major, minor, patch;
  void *slots[9];
} Interface;

#endif
