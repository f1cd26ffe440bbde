#include "bench/choose/search.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <exception>
#include <mutex>
#include <thread>
#include <tuple>

#include "bench/choose/closed_form.h"

namespace mb {
namespace {

using Clock = std::chrono::steady_clock;
double since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Cases that are simulated at once; their times bound what comes after.
constexpr std::size_t kBatch = 16;

struct OfMesh {
  std::vector<Scored> fitting;
  std::optional<Scored> smallest;
  std::int64_t cases = 0, too_large = 0, slower_in_chunks = 0;
  std::map<std::string, Rejected> rejected;
};

// Estimates of two cases that differ in tensor_chunks alone err alike: of 1,432 random ones that
// were slower in chunks than whole by this much or more, none was faster in the Plan. So they come
// after what they are alike with.
constexpr double kSlowerInChunks = 0.01;
// Estimates of memory may be too small by this.
constexpr double kSurelyFits = 0.8;

Scored score(const Space& space, const Candidate& candidate, const StepOptions& options,
             ClosedForm& form) {
  const Mesh& mesh = space.meshes()[candidate.mesh];
  const Estimate e = form.estimate(mesh, options);
  const EstimateError error = error_of(mesh, options, space.question().stack);
  return {candidate, e.step_s, e.memory_bytes, e.step_s / (1 + error.form)};
}

OfMesh score_mesh(const Space& space, int mesh, ClosedForm& form) {
  const double limit = space.question().memory_bytes;
  OfMesh scored;
  Scored whole;  // the last case of the fewest tensor_chunks
  const auto is_slower_in_chunks = [&](const Scored& one) {
    return one.candidate.tensor_chunks > whole.candidate.tensor_chunks &&
           one.form_s > whole.form_s * (1 + kSlowerInChunks) &&
           (whole.memory_bytes <= kSurelyFits * limit || whole.memory_bytes <= one.memory_bytes);
  };
  space.visit(
      mesh,
      [&](const Candidate& candidate, const StepOptions& options) {
        const Scored one = score(space, candidate, options, form);
        const EstimateError error = error_of(space.meshes()[mesh], options, space.question().stack);
        ++scored.cases;
        // Cases that differ in them alone follow each other, fewest first.
        Candidate alike = candidate;
        alike.tensor_chunks = whole.candidate.tensor_chunks;
        if (scored.cases == 1 || !(alike == whole.candidate)) whole = one;
        if (one.memory_bytes > limit * (1 + error.memory)) {
          ++scored.too_large;
        } else if (is_slower_in_chunks(one)) {
          ++scored.slower_in_chunks;
        } else {
          scored.fitting.push_back(one);
        }
        if (!scored.smallest || one.memory_bytes < scored.smallest->memory_bytes)
          scored.smallest = one;
      },
      [&](const Refusal& refusal) {
        Rejected& rejected = scored.rejected[refusal.rule];
        if (rejected.cases == 0) rejected.example = refusal.reason;
        rejected.cases += refusal.cases;
      });
  return scored;
}

bool share_blocks(const Mesh& a, const Mesh& b) {
  const auto same = [&](Axis axis) { return a.size(axis) == b.size(axis); };
  return same(Axis::tp) && same(Axis::cp) && same(Axis::ep);
}

// Same seconds: the smaller, then as they come.
bool before(const Simulated& a, const Simulated& b) {
  return std::pair(a.prediction.step_s, a.prediction.memory.total()) <
         std::pair(b.prediction.step_s, b.prediction.memory.total());
}

// Of points sorted by time, those that need less memory than all before.
template <class T, class Memory>
std::vector<T> front_of(const std::vector<T>& sorted, Memory&& memory) {
  std::vector<T> front;
  for (const T& point : sorted) {
    if (front.empty() || memory(point) < memory(front.back())) front.push_back(point);
  }
  return front;
}

class Searcher {
 public:
  Searcher(const Space& space, const SearchLimits& limits) : space_(space), limits_(limits) {
    const Question& q = space.question();
    forms_.push_back(std::make_unique<ClosedForm>(q.model, q.machine, q.stack));
    for (int t = 1; t < limits.threads; ++t)
      forms_.push_back(std::make_unique<ClosedForm>(*forms_[0]));
  }

  SearchResult run() {
    const auto start = Clock::now();
    score_all();
    result_.forms_s = since(start);
    find_fastest();
    add_slower_in_chunks();
    add_front();
    finish();
    result_.fitting = std::move(fitting_);
    result_.total_s = since(start);
    return std::move(result_);
  }

 private:
  void score_all() {
    std::vector<OfMesh> scored(space_.meshes().size());
    // Meshes whose blocks have the same shapes follow each other; a thread takes them together.
    std::vector<std::size_t> runs;
    for (std::size_t m = 0; m < scored.size(); ++m) {
      if (m == 0 || !share_blocks(space_.meshes()[m - 1], space_.meshes()[m])) runs.push_back(m);
    }
    runs.push_back(scored.size());
    std::atomic<std::size_t> next{0};
    in_parallel(limits_.threads, limits_.threads, [&](std::int64_t thread) {
      for (std::size_t r = next++; r + 1 < runs.size(); r = next++) {
        for (std::size_t m = runs[r]; m < runs[r + 1]; ++m)
          scored[m] = score_mesh(space_, static_cast<int>(m), *forms_[thread]);
      }
    });
    for (const OfMesh& of : scored) {
      result_.cases += of.cases;
      result_.too_large += of.too_large;
      result_.slower_in_chunks += of.slower_in_chunks;
      fitting_.insert(fitting_.end(), of.fitting.begin(), of.fitting.end());
      if (of.smallest && (!smallest_ || of.smallest->memory_bytes < smallest_->memory_bytes))
        smallest_ = of.smallest;
      for (const auto& [rule, rejected] : of.rejected) {
        Rejected& all = result_.rejected[rule];
        if (all.cases == 0) all.example = rejected.example;
        all.cases += rejected.cases;
      }
    }
    std::stable_sort(fitting_.begin(), fitting_.end(),
                     [](const Scored& a, const Scored& b) { return a.least_s < b.least_s; });
  }

  struct Walked {
    std::size_t index;
    double walk_s, least_s;
  };
  Walked walk(std::size_t index, ClosedForm& form) const {
    const Candidate& candidate = fitting_[index].candidate;
    const StepOptions options = space_.options_of(candidate);
    const Mesh& mesh = space_.meshes()[candidate.mesh];
    const double seconds = form.walked_s(mesh, options);
    return {index, seconds, seconds / (1 + error_of(mesh, options, space_.question().stack).walk)};
  }

  // No case that takes longer is among the best.
  double bound() const {
    if (static_cast<int>(result_.fastest.size()) < limits_.best) return INFINITY;
    return result_.fastest[limits_.best - 1].prediction.step_s;
  }

  void add(const Simulated& simulated) {
    ++result_.simulated;
    if (!simulated.fits) {
      if (!result_.smallest ||
          needed_bytes(simulated.prediction) < needed_bytes(result_.smallest->prediction))
        result_.smallest = simulated;
      return;
    }
    auto& fastest = result_.fastest;
    fastest.insert(std::upper_bound(fastest.begin(), fastest.end(), simulated, before), simulated);
  }

  void simulate_batch(const std::vector<Walked>& batch) {
    std::vector<Simulated> done(batch.size());
    in_parallel(limits_.threads, static_cast<std::int64_t>(batch.size()), [&](std::int64_t i) {
      const Scored& scored = fitting_[batch[i].index];
      done[i] = simulate_candidate(space_, scored.candidate);
      done[i].form_s = scored.form_s;
      done[i].walk_s = batch[i].walk_s;
    });
    for (const Simulated& one : done) {
      layers_ += space_.question().model.layers * one.prediction.simulated_micro_batches;
      add(one);
    }
  }

  // Those of `walked` that may be among the fastest, from the fastest walk on.
  void simulate_fastest(std::vector<Walked> walked) {
    sort_by_walk(walked);
    for (std::size_t next = 0; next < walked.size();) {
      std::vector<Walked> batch;
      for (; next < walked.size() && batch.size() < kBatch; ++next) {
        if (walked[next].least_s <= bound()) batch.push_back(walked[next]);
      }
      if (is_spent()) {
        result_.left += static_cast<std::int64_t>(batch.size());
      } else {
        simulate_batch(batch);
      }
    }
  }

  bool is_spent() const {
    return result_.simulated >= limits_.most || layers_ >= limits_.most_layers;
  }

  static void sort_by_walk(std::vector<Walked>& walked) {
    std::sort(walked.begin(), walked.end(), [](const Walked& a, const Walked& b) {
      return std::tie(a.walk_s, a.index) < std::tie(b.walk_s, b.index);
    });
  }

  // All that may be among the fastest by closed form are walked, and those that may be so by their
  // walks simulated. Ever larger parts are walked in turn, and the best walks of each simulated, so
  // that what is known of the fastest leaves out most of the cases to come.
  void find_fastest() {
    std::vector<Walked> waiting;
    std::size_t end = 0;
    const auto may_be_fastest = [&] {
      return end < fitting_.size() && fitting_[end].least_s <= bound();
    };
    for (std::size_t part = 256; may_be_fastest() && !is_spent(); part *= 2) {
      const std::size_t begin = end;
      while (may_be_fastest() && end - begin < part) ++end;
      const std::vector<Walked> more = walk_all(begin, end);
      waiting.insert(waiting.end(), more.begin(), more.end());
      sort_by_walk(waiting);
      const auto first = waiting.begin(),
                 tried = first + static_cast<std::ptrdiff_t>(std::min(kBatch, waiting.size()));
      simulate_batch({first, tried});
      waiting.erase(first, tried);
      std::erase_if(waiting, [&](const Walked& one) { return one.least_s > bound(); });
    }
    for (; may_be_fastest(); ++end) ++result_.left;
    simulate_fastest(std::move(waiting));
  }

  // A case that is slower in chunks has a place only behind the same case without.
  void add_slower_in_chunks() {
    const std::size_t begin = fitting_.size();
    const auto places = std::min<std::size_t>(limits_.best, result_.fastest.size());
    for (std::size_t place = 0; place < places; ++place) {
      for (const Candidate& c : space_.in_chunks(result_.fastest[place].candidate)) {
        const auto is_known = [&](const Simulated& s) { return s.candidate == c; };
        const Scored scored = score(space_, c, space_.options_of(c), *forms_[0]);
        if (scored.least_s <= bound() &&
            std::none_of(result_.fastest.begin(), result_.fastest.end(), is_known))
          fitting_.push_back(scored);
      }
    }
    simulate_fastest(walk_all(begin, fitting_.size()));
    fitting_.resize(begin);
  }

  std::vector<Walked> walk_all(std::size_t begin, std::size_t end) {
    std::vector<Walked> walked(end - begin);
    // Mesh by mesh, as closed forms like it.
    std::vector<std::size_t> order(walked.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return fitting_[begin + a].candidate.mesh < fitting_[begin + b].candidate.mesh;
    });
    constexpr std::size_t kAtOnce = 64;
    std::atomic<std::size_t> at{0};
    in_parallel(limits_.threads, limits_.threads, [&](std::int64_t thread) {
      for (std::size_t i = at++; i * kAtOnce < order.size(); i = at++) {
        for (std::size_t o = i * kAtOnce; o < std::min((i + 1) * kAtOnce, order.size()); ++o)
          walked[order[o]] = walk(begin + order[o], *forms_[thread]);
      }
    });
    result_.walked += static_cast<std::int64_t>(walked.size());
    return walked;
  }

  // Of the closed forms' front, some cases from end to end.
  void add_front() {
    std::vector<Scored> sorted = fitting_;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Scored& a, const Scored& b) { return a.form_s < b.form_s; });
    const std::vector<Scored> front =
        front_of(sorted, [](const Scored& s) { return s.memory_bytes; });
    std::vector<Walked> batch;
    const std::size_t wanted = std::min<std::size_t>(limits_.front, front.size());
    for (std::size_t i = 0; i < wanted; ++i) {
      const Scored& scored = front[wanted == 1 ? 0 : i * (front.size() - 1) / (wanted - 1)];
      const auto known = [&](const Simulated& s) { return s.candidate == scored.candidate; };
      if (std::any_of(result_.fastest.begin(), result_.fastest.end(), known)) continue;
      const auto index = static_cast<std::size_t>(
          std::find_if(fitting_.begin(), fitting_.end(),
                       [&](const Scored& s) { return s.candidate == scored.candidate; }) -
          fitting_.begin());
      batch.push_back(walk(index, *forms_[0]));
    }
    simulate_batch(batch);
  }

  void finish() {
    result_.all = result_.fastest;
    result_.front =
        front_of(result_.all, [](const Simulated& s) { return needed_bytes(s.prediction); });
    if (static_cast<int>(result_.fastest.size()) > limits_.best)
      result_.fastest.resize(limits_.best);
    if (!result_.fastest.empty()) {
      result_.smallest.reset();
    } else if (!result_.smallest && smallest_) {
      result_.smallest = simulate_candidate(space_, smallest_->candidate);
    }
  }

  const Space& space_;
  const SearchLimits limits_;
  std::int64_t layers_ = 0;  // of micro-batches, in simulated cases
  std::vector<std::unique_ptr<ClosedForm>> forms_;
  std::vector<Scored> fitting_;  // fastest first
  std::optional<Scored> smallest_;
  SearchResult result_;
};

}  // namespace

void in_parallel(int threads, std::int64_t n, const std::function<void(std::int64_t)>& f) {
  std::atomic<std::int64_t> next{0};
  std::exception_ptr failure;
  std::mutex mutex;
  const auto work = [&] {
    for (std::int64_t i = next++; i < n; i = next++) {
      try {
        f(i);
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = n;
      }
    }
  };
  {
    std::vector<std::jthread> helpers;
    for (int t = 1; t < threads; ++t) helpers.emplace_back(work);
    work();
  }
  if (failure) std::rethrow_exception(failure);
}

double needed_bytes(const Prediction& prediction) {
  return static_cast<double>(prediction.memory.total());
}

Simulated simulate_candidate(const Space& space, const Candidate& candidate) {
  const Question& q = space.question();
  Simulated simulated{.candidate = candidate};
  simulated.prediction = predict(q.model, space.meshes()[candidate.mesh],
                                 space.options_of(candidate), q.machine, q.stack);
  simulated.fits = needed_bytes(simulated.prediction) <= q.memory_bytes;
  return simulated;
}

SearchResult search(const Space& space, const SearchLimits& limits) {
  return Searcher(space, limits).run();
}

}  // namespace mb
