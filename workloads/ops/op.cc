#include "workloads/ops/op.h"
