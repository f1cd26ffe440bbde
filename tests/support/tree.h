// A folder of files as /proc and /sys have them, for what reads a node below a root.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

namespace mb {

// Gone with the object.
class Tree {
 public:
  Tree() {
    const testing::TestInfo* test = testing::UnitTest::GetInstance()->current_test_info();
    root_ = std::filesystem::path(testing::TempDir()) /
            (std::string("tree_") + test->test_suite_name() + "_" + test->name());
    std::filesystem::remove_all(root_);
    std::filesystem::create_directories(root_);
  }
  ~Tree() {
    std::error_code error;
    std::filesystem::remove_all(root_, error);
  }
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;

  const std::filesystem::path& root() const { return root_; }
  Tree& file(const std::filesystem::path& path, const std::string& text) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << text;
    return *this;
  }
  // A link to `target`, below the root too.
  Tree& link(const std::filesystem::path& path, const std::filesystem::path& target) {
    std::filesystem::create_directories((root_ / path).parent_path());
    std::filesystem::create_directories(root_ / target);
    std::filesystem::create_symlink(root_ / target, root_ / path);
    return *this;
  }

 private:
  std::filesystem::path root_;
};

}  // namespace mb
