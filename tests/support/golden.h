// Texts that are compared whole with a file under tests/golden.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace mb {

// Compares with tests/golden/NAME.txt; MB_UPDATE_GOLDEN=1 in the environment writes it instead.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(MB_GOLDEN_DIR) + "/" + name + ".txt";
  if (std::getenv("MB_UPDATE_GOLDEN")) {
    std::ofstream(path) << text;
    return;
  }
  std::ifstream file(path);
  ASSERT_TRUE(file.good()) << "no " << path << "; MB_UPDATE_GOLDEN=1 writes it";
  std::ostringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text, expected.str()) << "if this is meant, MB_UPDATE_GOLDEN=1 writes " << path;
}

}  // namespace mb
