#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "comm/gloo/gloo_group.h"
#include "comm/mpi/mpi_group.h"
#include "tests/comm/group_suite.h"
#include "tests/comm/patient_gloo.h"

// The suite for groups whose ranks are processes: every rank of an mpirun job runs this program, and all run the same tests in
// the same order. mpirun --enable-recovery exits with 0 whatever its processes do, so ctest looks for the line that rank 0
// prints after it has collected everyone's verdict.

// Of the leak checker, if the program is built with it.
extern "C" [[gnu::weak]] void __lsan_do_leak_check();  // NOLINT(bugprone-reserved-identifier)

namespace ferry {
namespace {

MpiRuntime* runtime = nullptr;  // main's; tests have no other way to it
Group* control = nullptr;       // meets at the end of each test; the tests' own groups may have failed by then

GroupCluster process_cluster(const std::string& name) {
  GroupCluster cluster;
  cluster.name = name;
  cluster.notices_departure = cluster.survives_overflow = name == "gloo";
  cluster.run = [is_gloo = name == "gloo"](const GroupCluster::Body& body) {
    const auto group = is_gloo ? make_gloo_group(*control, suite::patient_gloo()) : make_mpi_group(*runtime);
    try {
      body(*group);
    } catch (const std::exception& error) {
      ADD_FAILURE() << "rank " << group->rank().value << ": " << error.what();
    }
    control->barrier(test::in_good_time());
  };
  return cluster;
}

INSTANTIATE_TEST_SUITE_P(Mpirun, GroupSuite, testing::Values(process_cluster("mpi"), process_cluster("gloo")), cluster_name);

TEST(MpiRuntime, KnowsTheJob) {
  EXPECT_TRUE(MpiRuntime::launched_by_mpirun());
  EXPECT_EQ(runtime->size(), control->size());
  EXPECT_EQ(runtime->rank(), control->rank());
  EXPECT_EQ(runtime->local_size(), runtime->size()) << "this test runs on one host";
  EXPECT_EQ(runtime->local_rank(), runtime->rank().value);
  EXPECT_NE(runtime->host_name(), "");
}

TEST(MpiGroup, RefusesWhatMpiCannotCount) {
  if (control->size() == 1) return;
  const auto group = make_mpi_group(*runtime);
  std::byte any{};
  const Rank peer{runtime->rank().value == 0 ? 1 : 0};
  // Never read: the size is refused first.
  const std::span<const std::byte> huge(&any, kMaxMpiMessageBytes + 1);
  suite::expect_error(ErrorCode::kInvalidArgument, "2147483648 bytes", [&] { (void)group->isend(huge, peer, 0); });
}

// Says on rank 0 whether all ranks passed.
bool agree(bool passed) {
  std::vector<std::byte> verdicts(static_cast<std::size_t>(control->size()));
  const std::byte mine{static_cast<unsigned char>(passed ? 1 : 0)};
  control->all_gather(std::span(&mine, 1), verdicts, test::in_good_time());
  return std::count(verdicts.begin(), verdicts.end(), std::byte{1}) == control->size();
}

int run_all(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  MpiRuntime mpi;
  const auto control_group = make_mpi_group(mpi);
  runtime = &mpi;
  control = control_group.get();
  const bool passed = RUN_ALL_TESTS() == 0;
  const bool all_passed = agree(passed);
  if (mpi.rank() == Rank{0} && all_passed)
    std::cout << "every rank of " << mpi.size() << " passed"
              << "\n"
              << std::flush;
  // Checked before MPI ends: it unloads its plugins, and then their leaks cannot be told from ours by their place any more.
  std::cout << std::flush;
  if (__lsan_do_leak_check != nullptr) __lsan_do_leak_check();
  return all_passed ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace ferry

int main(int argc, char** argv) {
  try {
    return ferry::run_all(argc, argv);
  } catch (const std::exception& error) {
    std::cerr << "FAILED: " << error.what() << "\n";
    std::_Exit(EXIT_FAILURE);  // past MPI_Finalize, which would wait for the others
  }
}
