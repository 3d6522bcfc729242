#include "comm/mpi/mpi_group.h"

#include <mpi.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <vector>

#include "comm/failure_latch.h"
#include "comm/mpi/host_doorbell.h"
#include "runtime/base/check.h"

namespace ferry {
namespace {

using std::chrono::microseconds;
using SteadyClock = std::chrono::steady_clock;

// How a wait gives its core away: for a moment to whoever is ready to run, then by sleeping until a rank of this host rings.
// What nobody rings for (other hosts) is looked for after an eighth of what was waited so far, so it is noticed at most an
// eighth late.
//
// Where the system forbids MPI to copy from another process's memory (many containers do), a large message passes through
// shared memory piece by piece, and both ends have to call MPI for every piece. So who waits with a message of its own under
// way to a rank that waits as well stays awake, and keeps the other awake.
constexpr microseconds kYieldFor{20};
constexpr microseconds kShortestSleep{20};
constexpr microseconds kLongestSleep{500};
constexpr int kSleepShare = 8;

constexpr std::size_t kEagerBytes = 4096;  // up to here Open MPI sends without asking, and cuts what does not fit its receive

std::string mpi_error_text(int result) {
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int chars = 0;
  MPI_Error_string(result, text.data(), &chars);
  return {text.data(), static_cast<std::size_t>(chars)};
}

bool mpi_is_usable() {
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized == 0;
}

struct MpiOp : PendingOp {
  MpiOp(const OpInfo& op_info, std::vector<MpiOp*>& unfinished_sends) : PendingOp(op_info), sends(unfinished_sends) {}

  // An unfinished receive is withdrawn, so that a late message is not written to memory that its owner has freed.
  ~MpiOp() override {
    if (is_send()) std::erase(sends, this);
    if (request == MPI_REQUEST_NULL || !mpi_is_usable()) return;
    if (!is_send()) MPI_Cancel(&request);
    MPI_Request_free(&request);
  }

  bool is_send() const { return info.kind == OpInfo::Kind::kSend; }

  std::vector<MpiOp*>& sends;  // the group's
  MPI_Request request = MPI_REQUEST_NULL;
  std::size_t num_moved = 0;  // bytes, once it is done
};

// How long to sleep at most after a wait that has lasted `waited`.
microseconds sleep_limit(SteadyClock::duration waited) {
  return std::clamp(std::chrono::duration_cast<microseconds>(waited) / kSleepShare, kShortestSleep, kLongestSleep);
}

class MpiGroup final : public Group {
 public:
  MpiGroup(Rank rank, int size) : rank_(rank), size_(size), comm_(duplicate_world()), doorbell_(rank) {}
  // The communicator stays with MPI until it finalizes: freeing it is collective, and a group may be destroyed because a
  // peer is gone. A job makes a handful of groups.
  ~MpiGroup() override = default;

  const char* name() const override { return "mpi"; }
  Rank rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<PendingOp> isend(std::span<const std::byte> data, Rank to, int tag) override {
    auto op = start({OpInfo::Kind::kSend, to, tag, data.size()});
    const int count = static_cast<int>(data.size());
    check(MPI_Isend(data.data(), count, MPI_BYTE, to.value, tag, comm_, &op->request), describe(op->info));
    sends_.push_back(op.get());
    doorbell_.ring(to);
    return op;
  }

  std::unique_ptr<PendingOp> irecv(std::span<std::byte> data, Rank from, int tag, Fit fit) override {
    auto op = start({OpInfo::Kind::kRecv, from, tag, data.size(), fit});
    const int count = static_cast<int>(data.size());
    check(MPI_Irecv(data.data(), count, MPI_BYTE, from.value, tag, comm_, &op->request), describe(op->info));
    doorbell_.ring(from);
    return op;
  }

  std::size_t wait(PendingOp& pending, Deadline deadline) override {
    auto& op = dynamic_cast<MpiOp&>(pending);
    const HostDoorbell::Waiting waiting(doorbell_);
    doorbell_.ring(op.info.peer);  // it may sleep with a message for this rank under way
    const auto start = SteadyClock::now();
    auto last_news = start;
    uint32_t rings = doorbell_.count();
    while (true) {
      failure_.throw_if_set();
      if (test(op)) {
        doorbell_.ring(op.info.peer);  // what ended here may be what its own wait needs to end
        if (!op.is_send()) failure_.require_fit(op.info, op.num_moved);
        return op.num_moved;
      }
      const bool is_moving = push_sends();
      const uint32_t count = doorbell_.count();
      const auto now = SteadyClock::now();
      if (is_moving || count != rings) last_news = now;
      rings = count;
      if (now >= deadline) {
        failure_.set_deadline_exceeded(op.info);
      } else if (now - last_news < kYieldFor) {
        sched_yield();
      } else {
        doorbell_.wait(rings, sleep_limit(now - start));
      }
    }
  }

  void fail(Rank rank, const std::string& reason) override {
    failure_.set(ErrorCode::kUnavailable, rank, reason);
    doorbell_.ring(rank_);
  }
  std::string async_error() const override { return failure_.message(); }
  // Other threads may call this, so it leaves MPI alone; the operations are withdrawn when their owner destroys them.
  void abort() override {
    failure_.set_aborted();
    doorbell_.ring(rank_);
  }

 private:
  std::unique_ptr<MpiOp> start(const OpInfo& info) {
    check_op(info, rank_, size_);
    failure_.throw_if_set();
    if (info.bytes > kMaxMpiMessageBytes) {
      throw_invalid("[mpi] " + describe(info) + " is too large; at most " + std::to_string(kMaxMpiMessageBytes) +
                    " bytes are allowed");
    }
    return std::make_unique<MpiOp>(info, sends_);
  }

  /// Moves this rank's messages on; true if one is on its way to a rank that waits, which is kept awake for it.
  bool push_sends() {
    bool is_moving = false;
    for (std::size_t i = sends_.size(); i-- > 0;) {
      MpiOp& send = *sends_[i];
      if (test(send) || !doorbell_.is_waiting(send.info.peer)) continue;
      doorbell_.ring(send.info.peer);
      is_moving = true;
    }
    return is_moving;
  }

  bool test(MpiOp& op) {
    if (op.request == MPI_REQUEST_NULL) return true;
    int is_done = 0;
    MPI_Status status{};
    const int result = MPI_Test(&op.request, &is_done, &status);
    if (result != MPI_SUCCESS) {
      note_failure(op, result, status);
      failure_.throw_if_set();
    }
    if (is_done == 0) return false;
    op.num_moved = op.is_send() ? op.info.bytes : received_bytes(status);
    if (op.is_send()) std::erase(sends_, &op);
    return true;
  }

  static std::size_t received_bytes(const MPI_Status& status) {
    MPI_Count bytes = 0;
    MPI_Get_elements_x(&status, MPI_BYTE, &bytes);
    return static_cast<std::size_t>(bytes);
  }

  void note_failure(const MpiOp& op, int result, const MPI_Status& status) {
    int error_class = MPI_SUCCESS;
    MPI_Error_class(result, &error_class);
    if (error_class == MPI_ERR_TRUNCATE) {
      // Open MPI 4.1 copies the whole of a large message from a process of this host before it finds that the receive is
      // smaller.
      FERRY_CHECK_LE(received_bytes(status), kEagerBytes) << "may have been written to the memory of the " << describe(op.info);
      failure_.require_fit(op.info, received_bytes(status));
    }
    failure_.set(ErrorCode::kUnavailable, op.info.peer, describe(op.info) + " failed: " + mpi_error_text(result));
  }

  static MPI_Comm duplicate_world() {
    MPI_Comm comm = MPI_COMM_NULL;
    check(MPI_Comm_dup(MPI_COMM_WORLD, &comm), "MPI_Comm_dup");
    check(MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
    return comm;
  }

  static void check(int result, const std::string& what) {
    if (result != MPI_SUCCESS) throw Error(ErrorCode::kUnavailable, "[mpi] " + what + " failed: " + mpi_error_text(result));
  }

  const Rank rank_;
  const int size_;
  const MPI_Comm comm_;
  HostDoorbell doorbell_;
  std::vector<MpiOp*> sends_;  // unfinished ones
  FailureLatch failure_;
};

}  // namespace

std::unique_ptr<Group> make_mpi_group(MpiRuntime& runtime) {
  return std::make_unique<MpiGroup>(runtime.rank(), runtime.size());
}

}  // namespace ferry
