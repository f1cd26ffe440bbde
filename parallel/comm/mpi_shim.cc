// The table of mpi_library.h over the MPI that this file is compiled with.
#include <mpi.h>

#include <algorithm>
#include <climits>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "parallel/comm/mpi_library.h"
#include "workloads/base/half.h"

namespace mb {
namespace {

static_assert(sizeof(MPI_Comm) <= sizeof(MpiHandle) && sizeof(MPI_Request) <= sizeof(MpiHandle));

template <class Handle>
MpiHandle pack(Handle handle) {
  MpiHandle bits = 0;
  std::memcpy(&bits, &handle, sizeof handle);
  return bits;
}
template <class Handle>
Handle unpack(MpiHandle bits) {
  Handle handle;
  std::memcpy(&handle, &bits, sizeof handle);
  return handle;
}
MPI_Comm comm_of(MpiHandle bits) { return unpack<MPI_Comm>(bits); }

int rank_in(MPI_Comm comm) {
  int rank = 0;
  MPI_Comm_rank(comm, &rank);
  return rank;
}
int size_of(MPI_Comm comm) {
  int size = 0;
  MPI_Comm_size(comm, &size);
  return size;
}

MPI_Datatype type_of(DType type) {
  switch (type) {
    case DType::fp32:
      return MPI_FLOAT;
    case DType::fp64:
      return MPI_DOUBLE;
    case DType::bf16:
    case DType::fp16:
      return MPI_UINT16_T;  // reduced by operations of our own
    case DType::int32:
      return MPI_INT32_T;
    case DType::int8:
      return MPI_INT8_T;
    case DType::uint8:
      return MPI_UINT8_T;
    case DType::uint32:
      return MPI_UINT32_T;
    case DType::int64:
      return MPI_INT64_T;
    case DType::uint64:
      return MPI_UINT64_T;
  }
  return MPI_DATATYPE_NULL;
}

template <class Half, float (*combine)(float, float)>
void reduce_halves(void* from, void* into, int* count, MPI_Datatype*) {
  const auto* a = static_cast<const Half*>(from);
  auto* b = static_cast<Half*>(into);
  for (int i = 0; i < *count; ++i) b[i] = Half(combine(a[i], b[i]));
}
float add(float a, float b) { return a + b; }
float multiply(float a, float b) { return a * b; }
float least(float a, float b) { return a <= b || a != a ? a : b; }
float most(float a, float b) { return a >= b || a != a ? a : b; }

template <class Half, float (*combine)(float, float)>
MPI_Op half_op() {
  static const MPI_Op op = [] {
    MPI_Op made;
    MPI_Op_create(reduce_halves<Half, combine>, 1, &made);
    return made;
  }();
  return op;
}
template <class Half>
MPI_Op half_op_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::prod:
      return half_op<Half, multiply>();
    case ReduceOp::min:
      return half_op<Half, least>();
    case ReduceOp::max:
      return half_op<Half, most>();
    default:
      return half_op<Half, add>();
  }
}

#ifdef OPEN_MPI
// Where it has AVX, Open MPI 4.1's op/avx stops sums of bytes at the largest byte; here they wrap.
constexpr bool kByteSumsWrap = false;
#else
constexpr bool kByteSumsWrap = true;
#endif

void add_bytes(void* from, void* into, int* count, MPI_Datatype*) {
  const auto* a = static_cast<const std::uint8_t*>(from);
  auto* b = static_cast<std::uint8_t*>(into);
  for (int i = 0; i < *count; ++i) b[i] = static_cast<std::uint8_t>(a[i] + b[i]);
}
MPI_Op byte_sum() {
  static const MPI_Op op = [] {
    MPI_Op made;
    MPI_Op_create(add_bytes, 1, &made);
    return made;
  }();
  return op;
}

MPI_Op op_of(ReduceOp op, DType type) {
  if (type == DType::bf16) return half_op_of<Bf16>(op);
  if (type == DType::fp16) return half_op_of<Fp16>(op);
  const bool sums = op == ReduceOp::sum || op == ReduceOp::avg;
  if (!kByteSumsWrap && sums && mb::size_of(type) == 1) return byte_sum();
  switch (op) {
    case ReduceOp::prod:
      return MPI_PROD;
    case ReduceOp::min:
      return MPI_MIN;
    case ReduceOp::max:
      return MPI_MAX;
    default:
      return MPI_SUM;
  }
}

// `count` elements as MPI takes them: as many of a basic type, or one of a type that holds all.
class Run {
 public:
  Run(std::int64_t count, DType type, std::int64_t limit) : type(type_of(type)) {
    if (count <= limit) {
      this->count = static_cast<int>(count);
      return;
    }
    const std::int64_t whole = count / limit, rest = count % limit;
    MPI_Datatype parts[2];
    MPI_Type_vector(static_cast<int>(whole), static_cast<int>(limit), static_cast<int>(limit),
                    this->type, &parts[0]);
    MPI_Type_contiguous(static_cast<int>(rest), this->type, &parts[1]);
    const int lengths[] = {1, 1};
    const MPI_Aint places[] = {0, static_cast<MPI_Aint>(whole * limit * mb::size_of(type))};
    MPI_Type_create_struct(2, lengths, places, parts, &this->type);
    MPI_Type_commit(&this->type);
    MPI_Type_free(&parts[0]);
    MPI_Type_free(&parts[1]);
    derived_ = true;
    this->count = 1;
  }
  ~Run() {
    if (derived_) MPI_Type_free(&type);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;

  MPI_Datatype type;
  int count = 0;

 private:
  bool derived_ = false;
};

const char* at(const void* data, std::int64_t bytes) {
  return static_cast<const char*>(data) + bytes;
}
char* at(void* data, std::int64_t bytes) { return static_cast<char*>(data) + bytes; }

// call(first element, elements) for pieces of at most `limit`, until one fails; once for none.
template <class Call>
int in_pieces(std::int64_t count, std::int64_t limit, Call call) {
  std::int64_t first = 0;
  do {
    const std::int64_t length = std::min(limit, count - first);
    if (const int error = call(first, static_cast<int>(length))) return error;
    first += length;
  } while (first < count);
  return MPI_SUCCESS;
}

void version(char* text, int bytes) {
  char whole[MPI_MAX_LIBRARY_VERSION_STRING];
  int length = 0;
  MPI_Get_library_version(whole, &length);
  const int line = static_cast<int>(std::find(whole, whole + length, '\n') - whole);
  std::snprintf(text, bytes, "%.*s", line, whole);
}

void error_text(int code, char* text, int bytes) {
  char whole[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(code, whole, &length);
  std::snprintf(text, bytes, "%.*s", length, whole);
}

int start(bool* any_thread, int* rank, int* size) {
  int provided = 0;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided))
    return error;
  *any_thread = provided == MPI_THREAD_MULTIPLE;
  *rank = rank_in(MPI_COMM_WORLD);
  *size = size_of(MPI_COMM_WORLD);
  return MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
}

int make_group(const int* ranks, int count, int tag, MpiHandle* group) {
  MPI_Group world, members;
  MPI_Comm comm = MPI_COMM_NULL;
  MPI_Comm_group(MPI_COMM_WORLD, &world);
  MPI_Group_incl(world, count, ranks, &members);
  const int error = MPI_Comm_create_group(MPI_COMM_WORLD, members, tag, &comm);
  MPI_Group_free(&members);
  MPI_Group_free(&world);
  *group = pack(comm);
  return error;
}

int free_group(MpiHandle* group) {
  MPI_Comm comm = comm_of(*group);
  const int error = MPI_Comm_free(&comm);
  *group = pack(comm);
  return error;
}

int isend(const void* data, std::int64_t bytes, int to, int tag, MpiHandle group,
          MpiHandle* request) {
  MPI_Request made;
  const int error =
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, to, tag, comm_of(group), &made);
  *request = pack(made);
  return error;
}

int irecv(void* data, std::int64_t bytes, int from, int tag, MpiHandle group, MpiHandle* request) {
  MPI_Request made;
  const int error =
      MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, from, tag, comm_of(group), &made);
  *request = pack(made);
  return error;
}

int test_all(MpiHandle* requests, int count, bool* done) {
  constexpr int kAtOnce = 32;
  *done = true;
  for (int first = 0; first < count; first += kAtOnce) {
    const int n = std::min(kAtOnce, count - first);
    MPI_Request some[kAtOnce];
    for (int i = 0; i < n; ++i) some[i] = unpack<MPI_Request>(requests[first + i]);
    int all = 0;
    if (const int error = MPI_Testall(n, some, &all, MPI_STATUSES_IGNORE)) return error;
    for (int i = 0; i < n; ++i) requests[first + i] = pack(some[i]);
    *done = *done && all;
  }
  return MPI_SUCCESS;
}

int probe(int tag, MpiHandle group, bool* there, int* from, int* bytes) {
  int flag = 0;
  MPI_Status status;
  const int error = MPI_Iprobe(MPI_ANY_SOURCE, tag, comm_of(group), &flag, &status);
  *there = error == MPI_SUCCESS && flag;
  if (!*there) return error;
  *from = status.MPI_SOURCE;
  return MPI_Get_count(&status, MPI_BYTE, bytes);
}

int all_reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op,
               MpiHandle group, std::int64_t limit) {
  return in_pieces(count, limit, [&](std::int64_t first, int length) {
    const std::int64_t offset = first * mb::size_of(type);
    return MPI_Allreduce(from == to ? MPI_IN_PLACE : at(from, offset), at(to, offset), length,
                         type_of(type), op_of(op, type), comm_of(group));
  });
}

int reduce(const void* from, void* to, std::int64_t count, DType type, ReduceOp op, int root,
           MpiHandle group, std::int64_t limit) {
  const bool is_root = rank_in(comm_of(group)) == root;
  return in_pieces(count, limit, [&](std::int64_t first, int length) {
    const std::int64_t offset = first * mb::size_of(type);
    return MPI_Reduce(at(from, offset), is_root ? at(to, offset) : nullptr, length, type_of(type),
                      op_of(op, type), root, comm_of(group));
  });
}

int all_gather(const void* from, void* to, std::int64_t count_each, DType type, MpiHandle group,
               std::int64_t limit) {
  const MPI_Comm comm = comm_of(group);
  const Run run(count_each, type, limit);
  const bool in_place = from == at(to, rank_in(comm) * count_each * mb::size_of(type));
  return MPI_Allgather(in_place ? MPI_IN_PLACE : from, run.count, run.type, to, run.count, run.type,
                       comm);
}

int reduce_scatter(const void* from, void* to, std::int64_t count_each, DType type, ReduceOp op,
                   MpiHandle group, std::int64_t limit) {
  if (count_each <= limit)
    return MPI_Reduce_scatter_block(from, to, static_cast<int>(count_each), type_of(type),
                                    op_of(op, type), comm_of(group));
  for (int owner = 0; owner < size_of(comm_of(group)); ++owner) {
    const void* part = at(from, owner * count_each * mb::size_of(type));
    if (const int error = reduce(part, to, count_each, type, op, owner, group, limit)) return error;
  }
  return MPI_SUCCESS;
}

int all_to_all(const void* from, void* to, std::int64_t count_each, DType type, MpiHandle group,
               std::int64_t limit) {
  const Run run(count_each, type, limit);
  return MPI_Alltoall(from, run.count, run.type, to, run.count, run.type, comm_of(group));
}

// Every part by itself, for counts and places that no int holds.
int all_to_all_v_by_parts(const void* from, const std::int64_t* send_counts, void* to,
                          const std::int64_t* recv_counts, DType type, MPI_Comm comm,
                          std::int64_t limit) {
  const int n = size_of(comm);
  std::vector<MPI_Request> requests(2 * n);
  for (int k = 0; k < n; ++k) {
    const Run in(recv_counts[k], type, limit), out(send_counts[k], type, limit);
    if (const int error = MPI_Irecv(to, in.count, in.type, k, 0, comm, &requests[2 * k]))
      return error;
    if (const int error = MPI_Isend(from, out.count, out.type, k, 0, comm, &requests[2 * k + 1]))
      return error;
    from = at(from, send_counts[k] * mb::size_of(type));
    to = at(to, recv_counts[k] * mb::size_of(type));
  }
  return MPI_Waitall(2 * n, requests.data(), MPI_STATUSES_IGNORE);
}

int all_to_all_v(const void* from, const std::int64_t* send_counts, void* to,
                 const std::int64_t* recv_counts, DType type, MpiHandle group, std::int64_t limit) {
  const MPI_Comm comm = comm_of(group);
  const int n = size_of(comm);
  std::vector<int> sizes(4 * n);
  int *sent = &sizes[0], *sent_at = sent + n, *wanted = sent_at + n, *wanted_at = wanted + n;
  std::int64_t out = 0, in = 0;
  for (int k = 0; k < n; ++k) {
    sent[k] = static_cast<int>(send_counts[k]);
    wanted[k] = static_cast<int>(recv_counts[k]);
    sent_at[k] = static_cast<int>(std::exchange(out, out + send_counts[k]));
    wanted_at[k] = static_cast<int>(std::exchange(in, in + recv_counts[k]));
  }
  // All have to go the same way.
  std::int64_t most = std::max(out, in);
  if (const int error = MPI_Allreduce(MPI_IN_PLACE, &most, 1, MPI_INT64_T, MPI_MAX, comm))
    return error;
  if (most > limit)
    return all_to_all_v_by_parts(from, send_counts, to, recv_counts, type, comm, limit);
  return MPI_Alltoallv(from, sent, sent_at, type_of(type), to, wanted, wanted_at, type_of(type),
                       comm);
}

int send_recv(const void* from, int dest, void* to, int source, std::int64_t count, DType type,
              MpiHandle group, std::int64_t limit) {
  const Run run(count, type, limit);
  return MPI_Sendrecv(from, run.count, run.type, dest, 0, to, run.count, run.type, source, 0,
                      comm_of(group), MPI_STATUS_IGNORE);
}

int broadcast(void* data, std::int64_t count, DType type, int root, MpiHandle group,
              std::int64_t limit) {
  const Run run(count, type, limit);
  return MPI_Bcast(data, run.count, run.type, root, comm_of(group));
}

int gather(const void* from, void* to, std::int64_t count_each, DType type, int root,
           MpiHandle group, std::int64_t limit) {
  const MPI_Comm comm = comm_of(group);
  const Run run(count_each, type, limit);
  const bool in_place =
      rank_in(comm) == root && from == at(to, root * count_each * mb::size_of(type));
  return MPI_Gather(in_place ? MPI_IN_PLACE : from, run.count, run.type, to, run.count, run.type,
                    root, comm);
}

int scatter(const void* from, void* to, std::int64_t count_each, DType type, int root,
            MpiHandle group, std::int64_t limit) {
  const MPI_Comm comm = comm_of(group);
  const Run run(count_each, type, limit);
  const bool in_place =
      rank_in(comm) == root && to == at(from, root * count_each * mb::size_of(type));
  return MPI_Scatter(from, run.count, run.type, in_place ? MPI_IN_PLACE : to, run.count, run.type,
                     root, comm);
}

constexpr MpiFunctions kFunctions = {
#ifdef OPEN_MPI
    .name = "Open MPI",
#elif defined(MPICH_VERSION)
    .name = "MPICH",
#else
    .name = "MPI",
#endif
    .version = version,
    .error_text = error_text,
    .start = start,
    .finish = [] { return MPI_Finalize(); },
    .abort = [](int exit_code) { MPI_Abort(MPI_COMM_WORLD, exit_code); },
    .make_group = make_group,
    .free_group = free_group,
    .isend = isend,
    .irecv = irecv,
    .test_all = test_all,
    .probe = probe,
    .all_reduce = all_reduce,
    .reduce = reduce,
    .all_gather = all_gather,
    .reduce_scatter = reduce_scatter,
    .all_to_all = all_to_all,
    .all_to_all_v = all_to_all_v,
    .send_recv = send_recv,
    .broadcast = broadcast,
    .gather = gather,
    .scatter = scatter,
    .barrier = [](MpiHandle group) { return MPI_Barrier(comm_of(group)); }};

}  // namespace
}  // namespace mb

extern "C" const mb::MpiFunctions* mb_mpi_functions() { return &mb::kFunctions; }
