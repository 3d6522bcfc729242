#pragma once

#include <grpcpp/alarm.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <mutex>
#include <utility>

#include "runtime/server/generate_context.h"
#include "runtime/server/task_pool.h"
#include "runtime/server/vllm/tokenizer_archive.h"
#include "smg/common.pb.h"

namespace ferry::vllm {

/// One GetTokenizer call: a pool makes the archive, then its pieces leave, one at a time; who does not take them in time is
/// cancelled. It counts as an open call. gRPC holds it until OnDone, and so does the pool while it works.
class ArchiveStream final : public grpc::ServerWriteReactor<::smg::grpc::common::GetTokenizerChunk>,
                            public std::enable_shared_from_this<ArchiveStream> {
 public:
  explicit ArchiveStream(std::shared_ptr<OpenCalls> open_calls) : open_calls_(std::move(open_calls)) {}
  ~ArchiveStream() override;
  ArchiveStream(const ArchiveStream&) = delete;
  ArchiveStream& operator=(const ArchiveStream&) = delete;

  /// `archives` and `pool` must outlive it, `context` be gRPC's of the call.
  void start(grpc::CallbackServerContext& context, TokenizerArchives& archives, TaskPool& pool);
  /// Ends the call with `status` at once, instead of start().
  void refuse(const grpc::Status& status);

  void OnWriteDone(bool ok) override;
  void OnDone() override;

 private:
  void write_piece();
  void end(const grpc::Status& status);

  const std::shared_ptr<OpenCalls> open_calls_;
  bool is_open_ = false;  // and counts as such
  std::shared_ptr<ArchiveStream> self_;
  std::shared_ptr<const TokenizerArchive> archive_;
  std::size_t offset_ = 0;  // of the next piece
  grpc::Alarm reader_alarm_;
  std::mutex mutex_;        // guards what follows
  bool has_ended_ = false;  // gRPC's context of the call may be gone
  ::smg::grpc::common::GetTokenizerChunk piece_;
};

}  // namespace ferry::vllm
