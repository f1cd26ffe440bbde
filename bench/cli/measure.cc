#include "bench/cli/measure.h"

#include <algorithm>
#include <cmath>

#include "bench/cli/exit.h"
#include "bench/cli/link_rates.h"
#include "bench/cli/ranks.h"
#include "bench/profile/cupti.h"
#include "parallel/exec/processes.h"
#include "parallel/exec/sim_executor.h"
#include "parallel/plan/validate.h"
#include "parallel/strategy/step.h"
#include "workloads/base/error.h"
#include "workloads/base/pages.h"
#include "workloads/base/units.h"
#include "workloads/model/counts.h"
#include "workloads/model/data.h"
#include "workloads/ops/cuda_peak.h"

namespace mb {
namespace {

// Steps on one rank in fp64 that the automatic check may cost: some seconds on a core.
constexpr double kAutomaticFlops = 1e11;

std::unique_ptr<TokenSource> open_source(const Case& c) {
  if (c.data.empty())
    return make_markov_source(c.model.vocabulary, static_cast<std::uint64_t>(c.seed));
  try {
    return open_token_file(c.data, c.model.vocabulary, c.model.sequence, c.global_batch);
  } catch (const Error& error) {
    throw Exit(kExitNoData, error.what());
  }
}

// Of this machine, which under MPI has some of the ranks. What GPUs have, their ranks find out.
void check_fits(const Case& c, const Plan& plan) {
  if (on_cuda(c.mode)) return;
  double needed = 0;
  for (int rank = 0; rank < c.mesh.world(); ++rank) {
    if (!on_mpi(c.mode) || mpi_world().host_of(rank) == mpi_world().host_of(mpi_world().rank()))
      needed += static_cast<double>(plan.program_of(rank).arena_bytes);
  }
  const double available = available_bytes();
  if (available == 0 || needed < available) return;
  throw OutOfMemory(
      cat("the ranks of this case take ", format_bytes(needed), " of memory, and this machine has ",
          format_bytes(available), " left; give a smaller model or micro_batch, or mode=sim"),
      static_cast<std::int64_t>(needed), static_cast<std::int64_t>(available));
}

// Numbers that are not finite mean that training has diverged: nothing after it is worth measuring.
void check_finite(const Training& training, int step, bool dynamic_scale) {
  // With a dynamic scale, such a step is skipped and the next one tries half of it.
  const bool retried = training.skipped && dynamic_scale && std::isfinite(training.loss);
  if (retried || (std::isfinite(training.loss) && std::isfinite(training.gradient_norm))) return;
  const bool overflow = std::isfinite(training.loss) && training.loss_scale != 1;
  throw Exit(kExitNoVerdict,
             cat("step ", step + 1, ": the loss is ", training.loss, " and the gradient norm ",
                 training.gradient_norm,
                 overflow ? cat("; it has overflowed at loss_scale=", training.loss_scale,
                                ": give a smaller one, or loss_scale=dynamic")
                          : "; give a smaller learning_rate"));
}

double seconds_of(const Timeline& timeline) {
  const Span window = timeline.window();
  return 1e-9 * static_cast<double>(window.end_ns - window.start_ns);
}

void simulate_case(const Case& c, Measured& result) {
  const auto cost = make_roofline_cost(result.plan, c.machine, c.stack);
  const StepCosts costs = costs_of(result.plan, *cost);
  const RankClasses classes = RankClasses::folded(result.plan, c.imbalance);
  const Timeline timeline = timeline_of(result.plan, classes, costs);
  result.variation = {.step_s = seconds_of(timeline)};
  if (!c.imbalance.empty())
    result.variation->even_step_s =
        seconds_of(timeline_of(result.plan, RankClasses::by_stage(result.plan), costs));
  if (!c.jitter.none())
    result.variation->spread =
        spread_of_step(result.plan, classes, costs, c.jitter, static_cast<std::uint64_t>(c.seed));
  result.results.timelines.push_back(timeline);
  result.results.links = {.algorithm = Algorithm::ring,
                          .links = LinkShape{.intra = c.machine.intra, .inter = c.machine.inter}};
  result.not_verified = "virtual time moves no data";
}

void train_case(const Case& c, const Progress& progress, Measured& result) {
  check_fits(c, result.plan);
  const auto source = open_source(c);
  result.data = source->describe();
  if (source->entropy_nats() >= 0) result.entropy_nats = source->entropy_nats();
  const auto batches = make_batches(*source, c.global_batch, c.mesh.data_size());
  const InitOptions init{.seed = static_cast<std::uint64_t>(c.seed)};
  result.results.links.links = c.link;
  if (on_mpi(c.mode))
    result.results.links = {.algorithm = Algorithm::direct,
                            .reason = "what the links between processes carry is not known"};
  if (on_cuda(c.mode) && why_no_speed()) result.results.no_speed = why_no_speed();
  result.not_verified = reason_not_to_verify(c);
  std::optional<Unsharded> gradients;
  try {
    if (c.profile == Profile::cupti) check_cupti();
    const DeviceMaker make_device = devices_of(c.mode, c.mesh, cuda_options(c));
    if (on_cuda(c.mode)) result.results.links = gpu_links(c, result.plan);
    CaseWorld world(c);
    Processes processes(*world, "measure");
    const auto executor = make_live_executor(result.plan,
                                             {.make_device = make_device,
                                              .init = init,
                                              .batches = batches.get(),
                                              .timeout_s = c.timeout_s,
                                              .seed = init.seed,
                                              .host_gb_per_s = c.offload_gb_per_s},
                                             *world);
    const int total = c.warm_up + c.steps;
    for (int step = 0; step < total; ++step) {
      StepResult done = executor->step();
      result.training.push_back(*done.training);
      check_finite(*done.training, step, c.options.dynamic_loss_scale);
      if (step >= c.warm_up) {
        result.results.training.push_back(*done.training);
        if (!done.cpu_ns.empty())
          result.on_own_cores.push_back(replay_on_own_cores(result.plan, done));
        result.results.timelines.push_back(std::move(done.timeline));
        result.results.clock_uncertainty_ns =
            std::max(result.results.clock_uncertainty_ns, done.clock_uncertainty_ns);
      }
      if (step == 0 && done.training->skipped && result.not_verified.empty())
        result.not_verified = "the first step overflowed at this loss_scale and was skipped";
      if (step == 0 && result.not_verified.empty())
        gradients = gather_gradients(result.plan, *executor, result.training.front());
      if (processes.any(!progress(step + 1, total))) {
        result.interrupted = cat("interrupted after step ", step + 1, " of ", total,
                                 "; run again with the same case: ", to_text(c));
        if (result.results.timelines.empty()) throw Exit(kExitInterrupted, *result.interrupted);
        break;
      }
    }
    result.results.memory = measured_memory(*executor, c.mesh.world());
    result.results.traffic = counted_traffic(result.plan, *executor);
    if (on_cuda(c.mode)) {
      result.cuda = cuda_facts();
      result.cuda_attention = cuda_attention();
    }
    if (result.interrupted) {
      result.not_verified = "interrupted";
      return;
    }
    result.traced = trace_steps(c, result.plan, (*world).local_ranks(), *executor, processes,
                                [&] { return progress(total, total); });
  } catch (const OutOfMemory&) {
    throw;
  } catch (const Error& error) {
    throw Exit(kExitNoVerdict, error.what());
  }
  if (gradients && reports())
    result.verification = verify_first_step(c.model, c.options, c.global_batch, *source, init,
                                            *gradients, result.training.front(), c.tf32);
}

}  // namespace

std::string reason_not_to_verify(const Case& c) {
  if (c.verify == Verify::off) return "verify=off";
  if (c.verify == Verify::on) return "";
  const double flops = model_flops(c.model, c.global_batch, FlopConvention::megatron);
  return flops <= kAutomaticFlops ? ""
                                  : "one rank in fp64 would take long for this model and batch; "
                                    "verify=on does it all the same";
}

Measured measure(const Case& c, const Progress& progress) {
  Measured result{.plan = plan_step(c.model, c.mesh, c.options)};
  validate(result.plan);
  if (!progress(0, c.warm_up + c.steps))
    throw Exit(kExitInterrupted, "interrupted before the first step");
  if (c.mode == Mode::sim) {
    simulate_case(c, result);
  } else {
    train_case(c, progress, result);
  }
  return result;
}

Measured measure_one_step(Case c) {
  require(c.mode != Mode::sim,
          "--run takes a step on ranks of this machine, and mode=sim has none; give mode=threads, "
          "mpi, or one with GPUs, or leave --run out");
  c.warm_up = 0;
  c.steps = 1;
  c.verify = Verify::off;
  c.profile = Profile::off;
  return measure(launched(std::move(c), "run"), [](int, int) { return true; });
}

}  // namespace mb
