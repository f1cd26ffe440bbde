// Tokens from a file: the bytes of a text, or ids of 2 or 4 bytes in a ".bin".
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "workloads/base/error.h"
#include "workloads/base/units.h"
#include "workloads/model/data.h"

namespace mb {
namespace {

// The bytes of a whole file, read-only; never empty.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    require(file >= 0, path, ": cannot open: ", std::strerror(errno));
    const off_t end = lseek(file, 0, SEEK_END);
    if (end > 0) {
      size_ = static_cast<std::size_t>(end);
      void* data = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file, 0);
      data_ = data == MAP_FAILED ? nullptr : static_cast<const unsigned char*>(data);
    }
    close(file);
    require(end > 0, path, ": the file is empty; give one with text or token ids");
    require(data_ != nullptr, path, ": cannot map ", size_, " bytes into memory");
  }
  MappedFile(MappedFile&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(other.size_) {}
  MappedFile& operator=(MappedFile&&) = delete;
  ~MappedFile() {
    if (data_) munmap(const_cast<unsigned char*>(data_), size_);
  }

  const unsigned char* data() const { return data_; }
  std::int64_t size() const { return static_cast<std::int64_t>(size_); }

 private:
  const unsigned char* data_ = nullptr;
  std::size_t size_ = 0;
};

class TokenFile : public TokenSource {
 public:
  TokenFile(std::string path, MappedFile file, int width, std::int64_t sequence)
      : path_(std::move(path)),
        file_(std::move(file)),
        width_(width),
        tokens_(file_.size() / width),
        sequence_(sequence) {}

  std::int64_t size() const { return tokens_; }

  std::int64_t token(std::int64_t i) const {
    std::int64_t id = 0;
    for (int byte = width_ - 1; byte >= 0; --byte) id = id << 8 | file_.data()[i * width_ + byte];
    return id;
  }

  void sample(std::int64_t index, std::int64_t sequence, std::int32_t* tokens) const override {
    require(sequence <= sequence_, path_, " was opened for sequences of ", sequence_,
            " tokens, not ", sequence);
    const std::int64_t first = index % ((tokens_ - 1) / sequence) * sequence;
    for (std::int64_t t = 0; t <= sequence; ++t) {
      tokens[t] = static_cast<std::int32_t>(token(first + t));
    }
  }

  double entropy_nats() const override { return -1; }

  std::string describe() const override {
    const std::string kind = width_ == 1 ? "bytes of text" : cat("ids of ", width_, " bytes");
    return cat(path_, ", ", tokens_, " ", kind);
  }

 private:
  std::string path_;
  MappedFile file_;
  int width_;  // bytes per token
  std::int64_t tokens_;
  std::int64_t sequence_;
};

void check_tokens(const TokenFile& file, const std::string& path, std::int64_t vocabulary) {
  for (std::int64_t i = 0; i < file.size(); ++i) {
    const std::int64_t id = file.token(i);
    require(id < vocabulary, path, ": token ", i, " is ", id, ", outside a vocabulary of ",
            vocabulary, "; set model.vocabulary to at least ", id + 1, " or give another file");
  }
}

}  // namespace

std::unique_ptr<TokenSource> open_token_file(const std::string& path, std::int64_t vocabulary,
                                             std::int64_t sequence, std::int64_t global_batch) {
  require(std::filesystem::exists(path), path, ": no such file; give a text file or ids in a .bin");
  require(!std::filesystem::is_directory(path), path, ": is a folder; give one file in it");
  MappedFile bytes(path);
  const bool ids = path.ends_with(".bin");
  const int width = !ids ? 1 : vocabulary <= 65536 ? 2 : 4;
  require(bytes.size() % width == 0, path, ": ", bytes.size(), " bytes are no whole number of ",
          width, "-byte ids, which a vocabulary of ", vocabulary, " wants");

  auto file = std::make_unique<TokenFile>(path, std::move(bytes), width, sequence);
  require(file->size() > sequence, path, ": has ", file->size(), " tokens, fewer than the ",
          sequence + 1,
          " of one sequence and its last label; give a longer file or a model.sequence",
          " of at most ", file->size() - 1);
  const std::int64_t sequences = (file->size() - 1) / sequence;
  require(global_batch <= sequences, path, ": has ", sequences, " sequences of ", sequence,
          " tokens, fewer than a global batch of ", global_batch, "; give a batch of at most ",
          sequences, ", a longer file or a shorter model.sequence");
  check_tokens(*file, path, vocabulary);
  return file;
}

}  // namespace mb
