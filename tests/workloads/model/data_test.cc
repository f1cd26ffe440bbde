#include "workloads/model/data.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>

#include "tests/support/error.h"

namespace mb {
namespace {

std::vector<std::int32_t> sample(const TokenSource& source, std::int64_t index,
                                 std::int64_t sequence) {
  std::vector<std::int32_t> tokens(static_cast<std::size_t>(sequence) + 1);
  source.sample(index, sequence, tokens.data());
  return tokens;
}

// A file of this test alone, removed at its end.
class TemporaryFile {
 public:
  TemporaryFile(const std::string& name, const std::string& bytes)
      : path_(::testing::TempDir() + "mb_data_" +
              ::testing::UnitTest::GetInstance()->current_test_info()->name() + "_" + name) {
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  ~TemporaryFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string alphabet(int count) {
  std::string text(static_cast<std::size_t>(count), '\0');
  std::iota(text.begin(), text.end(), '\1');
  return text;
}

std::string refusal(const std::string& path, std::int64_t vocabulary, std::int64_t sequence,
                    std::int64_t global_batch) {
  const std::string message =
      message_of([&] { open_token_file(path, vocabulary, sequence, global_batch); });
  EXPECT_EQ(message.find(path), 0) << message;
  return message.substr(std::min(path.size(), message.size()));
}

TEST(MarkovSource, SampleIsAFunctionOfSeedAndIndex) {
  const auto a = make_markov_source(256, 7), b = make_markov_source(256, 7);
  EXPECT_EQ(sample(*a, 5, 32), sample(*b, 5, 32));
  EXPECT_NE(sample(*a, 5, 32), sample(*a, 6, 32));
  EXPECT_NE(sample(*a, 5, 32), sample(*make_markov_source(256, 8), 5, 32));
}

TEST(MarkovSource, LongerSampleContinuesAShorterOne) {
  const auto source = make_markov_source(256, 7);
  std::vector<std::int32_t> longer = sample(*source, 3, 64);
  longer.resize(33);
  EXPECT_EQ(longer, sample(*source, 3, 32));
}

TEST(MarkovSource, TokensStayBelowVocabularyAnd64) {
  for (const std::int64_t vocabulary : {1, 5, 64, 50257}) {
    const auto source = make_markov_source(vocabulary, 1);
    for (const std::int32_t token : sample(*source, 0, 1000)) {
      EXPECT_GE(token, 0);
      EXPECT_LT(token, std::min<std::int64_t>(vocabulary, 64));
    }
  }
}

TEST(MarkovSource, OfOneStateHasNoEntropy) {
  EXPECT_EQ(make_markov_source(1, 1)->entropy_nats(), 0);
}

// The plug-in estimate from pair counts, over samples that start in the stationary distribution.
TEST(MarkovSource, EntropyRateIsThatOfItsSamples) {
  const auto source = make_markov_source(8, 3);
  std::map<std::pair<int, int>, double> pairs;
  std::map<int, double> firsts;
  double count = 0;
  for (int index = 0; index < 2000; ++index) {
    const std::vector<std::int32_t> tokens = sample(*source, index, 100);
    for (std::size_t t = 0; t + 1 < tokens.size(); ++t, ++count) {
      ++pairs[{tokens[t], tokens[t + 1]}];
      ++firsts[tokens[t]];
    }
  }
  double nats = 0;
  for (const auto& [pair, n] : pairs) nats -= n / count * std::log(n / firsts[pair.first]);
  EXPECT_NEAR(source->entropy_nats(), nats, 0.01);
  EXPECT_LT(source->entropy_nats(), std::log(8.0));
}

TEST(MarkovSource, FirstTokensAreStationary) {
  const auto source = make_markov_source(4, 3);
  std::vector<double> first(4), later(4);
  for (int index = 0; index < 20000; ++index) {
    const std::vector<std::int32_t> tokens = sample(*source, index, 10);
    first[static_cast<std::size_t>(tokens[0])] += 1 / 20000.0;
    later[static_cast<std::size_t>(tokens[10])] += 1 / 20000.0;
  }
  for (std::size_t s = 0; s < 4; ++s) EXPECT_NEAR(first[s], later[s], 0.02);
}

TEST(MarkovSource, WantsAVocabulary) {
  EXPECT_EQ(message_of([] { make_markov_source(0, 1); }),
            "model.vocabulary=0: give a whole number of at least 1");
}

TEST(TokenFile, SamplesAreRunsOfTheFileInOrder) {
  const TemporaryFile file("text", alphabet(11));
  const auto source = open_token_file(file.path(), 256, 4, 2);
  EXPECT_EQ(sample(*source, 0, 4), (std::vector<std::int32_t>{1, 2, 3, 4, 5}));
  EXPECT_EQ(sample(*source, 1, 4), (std::vector<std::int32_t>{5, 6, 7, 8, 9}));
  EXPECT_EQ(sample(*source, 2, 4), sample(*source, 0, 4));
  EXPECT_LT(source->entropy_nats(), 0);
  EXPECT_EQ(source->describe(), file.path() + ", 11 bytes of text");
}

TEST(TokenFile, BytesAbove127ArePositive) {
  const TemporaryFile file("text", "\xff\xfe\xfd");
  EXPECT_EQ(sample(*open_token_file(file.path(), 256, 2, 1), 0, 2),
            (std::vector<std::int32_t>{255, 254, 253}));
}

TEST(TokenFile, BinHoldsUint16OrForALargeVocabularyUint32) {
  const TemporaryFile file("ids.bin", std::string("\x01\x02\x00\x00\x03\x00\x01\x00", 8));
  EXPECT_EQ(sample(*open_token_file(file.path(), 65536, 3, 1), 0, 3),
            (std::vector<std::int32_t>{513, 0, 3, 1}));
  EXPECT_EQ(sample(*open_token_file(file.path(), 128256, 1, 1), 0, 1),
            (std::vector<std::int32_t>{513, 65539}));
}

TEST(TokenFile, RefusesWhatIsNoFile) {
  EXPECT_EQ(refusal(::testing::TempDir() + "mb_no_such_file", 256, 4, 1),
            ": no such file; give a text file or ids in a .bin");
  EXPECT_EQ(refusal(::testing::TempDir(), 256, 4, 1), ": is a folder; give one file in it");
}

TEST(TokenFile, RefusesAnEmptyFile) {
  const TemporaryFile file("empty", "");
  EXPECT_EQ(refusal(file.path(), 256, 4, 1),
            ": the file is empty; give one with text or token ids");
}

TEST(TokenFile, RefusesHalfAnId) {
  const TemporaryFile file("ids.bin", "12345");
  EXPECT_EQ(refusal(file.path(), 50257, 1, 1),
            ": 5 bytes are no whole number of 2-byte ids, which a vocabulary of 50257 wants");
}

TEST(TokenFile, RefusesAFileShorterThanASequenceAndALabel) {
  const TemporaryFile file("text", alphabet(4));
  EXPECT_EQ(refusal(file.path(), 256, 4, 1),
            ": has 4 tokens, fewer than the 5 of one sequence and its last label; give a longer "
            "file or a model.sequence of at most 3");
}

TEST(TokenFile, RefusesABatchThatIsMoreThanItHas) {
  const TemporaryFile file("text", alphabet(12));
  EXPECT_EQ(refusal(file.path(), 256, 4, 3),
            ": has 2 sequences of 4 tokens, fewer than a global batch of 3; give a batch of at "
            "most 2, a longer file or a shorter model.sequence");
}

TEST(TokenFile, RefusesATokenOutsideTheVocabularyNamingItsOffset) {
  const TemporaryFile text("text", "aaaz");
  EXPECT_EQ(refusal(text.path(), 100, 2, 1),
            ": token 3 is 122, outside a vocabulary of 100; set model.vocabulary to at least 123 "
            "or give another file");
  const TemporaryFile ids("ids.bin", std::string("\x01\x00\xff\xff", 4));
  EXPECT_EQ(refusal(ids.path(), 50257, 1, 1),
            ": token 1 is 65535, outside a vocabulary of 50257; set model.vocabulary to at least "
            "65536 or give another file");
}

// Sample i is i, i + 1, ...
class Counting : public TokenSource {
 public:
  void sample(std::int64_t index, std::int64_t sequence, std::int32_t* tokens) const override {
    std::iota(tokens, tokens + sequence + 1, static_cast<std::int32_t>(100 * index));
  }
  double entropy_nats() const override { return -1; }
  std::string describe() const override { return "counting"; }
};

TEST(Batches, LabelsAreTheNextTokens) {
  const Counting source;
  const auto batches = make_batches(source, /*global_batch=*/4, /*data_size=*/2);
  std::vector<std::int32_t> tokens(4), labels(4);
  batches->load(/*step=*/0, /*data_index=*/0, /*micro_batch=*/0, 2, 2, tokens.data(),
                labels.data());
  EXPECT_EQ(tokens, (std::vector<std::int32_t>{0, 1, 100, 101}));
  EXPECT_EQ(labels, (std::vector<std::int32_t>{1, 2, 101, 102}));
}

TEST(Batches, EveryCutOfAStepHoldsTheSameSamples) {
  const Counting source;
  for (const int data_size : {1, 2, 4}) {
    for (const std::int64_t batch : {1, 2}) {
      const auto batches = make_batches(source, 8, data_size);
      std::vector<std::int32_t> seen;
      for (int data_index = 0; data_index < data_size; ++data_index) {
        for (int m = 0; m < 8 / data_size / batch; ++m) {
          std::vector<std::int32_t> tokens(static_cast<std::size_t>(batch)), labels(tokens);
          batches->load(/*step=*/3, data_index, m, batch, 1, tokens.data(), labels.data());
          seen.insert(seen.end(), tokens.begin(), tokens.end());
        }
      }
      EXPECT_EQ(seen, (std::vector<std::int32_t>{2400, 2500, 2600, 2700, 2800, 2900, 3000, 3100}));
    }
  }
}

TEST(Batches, RefusesABatchThatDoesNotDivide) {
  const Counting source;
  EXPECT_EQ(message_of([&] { make_batches(source, 6, 4); }),
            "global batch 6 does not divide over 4 data ranks; give a positive multiple of that");
}

TEST(Batches, RefusesAMicroBatchPastTheShare) {
  const Counting source;
  const auto batches = make_batches(source, 4, 2);
  std::vector<std::int32_t> tokens(2), labels(2);
  EXPECT_EQ(
      message_of([&] { batches->load(0, 0, 1, 2, 1, tokens.data(), labels.data()); }),
      "micro-batch 1 of 2 sequences ends past the 2 sequences that a data rank has in a step");
}

}  // namespace
}  // namespace mb
