#pragma once

#include <filesystem>
#include <memory>
#include <mutex>
#include <string>

namespace ferry::vllm {

/// A ZIP archive of the files that make a checkpoint's tokenizer, templates and configuration, for who has no access to its
/// folder. The same files make the same bytes.
struct TokenizerArchive {
  std::string bytes;
  std::string sha256;  // of them, in hexadecimal
};

/// Reads the files and packs them. Throws Error{kFailedPrecondition} if there are none, or more bytes than receivers take;
/// otherwise as reading a file does.
TokenizerArchive make_tokenizer_archive(const std::filesystem::path& folder);

/// Makes the archive when somebody asks, and shares it among all who have it at the same time. Any thread may call it.
class TokenizerArchives {
 public:
  explicit TokenizerArchives(std::filesystem::path folder) : folder_(std::move(folder)) {}

  /// Takes time; throws as make_tokenizer_archive().
  std::shared_ptr<const TokenizerArchive> get();

 private:
  const std::filesystem::path folder_;
  std::mutex mutex_;  // held while it is made
  std::weak_ptr<const TokenizerArchive> shared_;
};

}  // namespace ferry::vllm
