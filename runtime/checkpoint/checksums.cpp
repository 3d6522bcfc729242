#include "runtime/checkpoint/checksums.h"

#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/json.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

using Json = nlohmann::json;
constexpr const char* kChecksumsAlgorithm = "xxh3-64";
constexpr int64_t kChecksumsVersion = 1;
constexpr std::size_t kChecksumDigits = 16;

/// Digits as checksum_text() writes them.
std::optional<uint64_t> parse_checksum(std::string_view text) {
  if (text.size() != kChecksumDigits) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    const bool is_digit = c >= '0' && c <= '9';
    if (!is_digit && (c < 'a' || c > 'f')) return std::nullopt;
    value = value << 4 | static_cast<uint64_t>(is_digit ? c - '0' : c - 'a' + 10);
  }
  return value;
}

std::optional<std::vector<uint64_t>> parse_pieces(const Json& text) {
  if (!text.is_string()) return std::nullopt;
  const std::string_view digits = text.get_ref<const std::string&>();
  std::vector<uint64_t> pieces;
  for (std::size_t at = 0; at < digits.size(); at += kChecksumDigits) {
    const std::optional<uint64_t> piece = parse_checksum(digits.substr(at, kChecksumDigits));
    if (!piece) return std::nullopt;
    pieces.push_back(*piece);
  }
  return pieces;
}

FileChecksums parse_file_checksums(const Json& value, const std::string& where) {
  const Json none;
  const auto at = [&](const char* key) -> const Json& { return value.is_object() && value.contains(key) ? value[key] : none; };
  const Json& bytes = at("bytes");
  const auto header = parse_pieces(at("header"));
  auto pieces = parse_pieces(at("pieces"));
  if (!bytes.is_number_unsigned() || !header || header->size() != 1 || !pieces) {
    throw_invalid(where + " is " + shown(value) +
                  "; allowed: an object with bytes, and header and pieces of 16 hexadecimal digits a checksum");
  }
  return {.bytes = bytes.get<int64_t>(), .header = header->front(), .pieces = std::move(*pieces)};
}

/// Returns the range [begin, end) of a piece in its tensor.
std::pair<int64_t, int64_t> piece_range(const TensorInfo& tensor, int64_t piece) {
  const int64_t begin = piece * tensor.checksums->piece_bytes;
  return {begin, begin + std::min(tensor.checksums->piece_bytes, tensor.bytes - begin)};
}

}  // namespace

std::string checksum_text(uint64_t checksum) {
  char text[kChecksumDigits + 1];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(checksum));
  return text;
}

bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

int64_t checksum_piece_bytes(StoredType dtype, const std::vector<int64_t>& shape) {
  constexpr int64_t kLeastExpertBytes = int64_t{64} << 10, kMostBytes = int64_t{4} << 20;
  if (std::ranges::find(shape, 0) != shape.end()) return kMostBytes;  // other extents may have any product
  int64_t unit = stored_type_bytes(dtype);
  for (std::size_t i = 1; i < shape.size(); ++i) unit *= shape[i];
  const bool is_stack = shape.size() >= 3 && unit >= kLeastExpertBytes;
  return is_stack ? unit : std::max<int64_t>(kMostBytes / unit, 1) * unit;
}

int64_t checksum_pieces(int64_t bytes, int64_t piece_bytes) { return bytes / piece_bytes + (bytes % piece_bytes == 0 ? 0 : 1); }

std::string write_checksums(const FolderChecksums& checksums) {
  Json root{{"format", kChecksumsFormat},
            {"version", kChecksumsVersion},
            {"algorithm", kChecksumsAlgorithm},
            {"weights", Json::object()}};
  for (const auto& [name, file] : checksums) {
    std::string digits;
    for (const uint64_t piece : file.pieces) digits += checksum_text(piece);
    root["weights"][name] = {{"bytes", file.bytes}, {"header", checksum_text(file.header)}, {"pieces", digits}};
  }
  return root.dump(1) + "\n";
}

FolderChecksums parse_checksums(std::string_view text, const std::string& name) {
  const Json root = parse_json(text, name, kNoDuplicates);
  const bool is_known = root.is_object() && root.value("format", Json()) == kChecksumsFormat &&
                        root.value("version", Json()) == kChecksumsVersion &&
                        root.value("algorithm", Json()) == kChecksumsAlgorithm && root.contains("weights") &&
                        root["weights"].is_object();
  if (!is_known) {
    throw_invalid(name + ": is " + shown(root) + "; allowed: format \"" + kChecksumsFormat + "\", version " +
                  std::to_string(kChecksumsVersion) + ", algorithm \"" + kChecksumsAlgorithm + "\" and an object 'weights'");
  }
  FolderChecksums folder;
  for (const auto& [file, value] : root["weights"].items()) {
    const std::string where = name + ": " + in_quotes(file);
    if (!is_plain_file_name(file)) throw_invalid(where + " is not the name of a file in the folder");
    folder.emplace(file, parse_file_checksums(value, where));
  }
  return folder;
}

void ChecksumMaker::begin(std::span<const std::byte> header) {
  header_ = content_hash(header);
  header_bytes_ = std::ssize(header);
}

void ChecksumMaker::expect(const std::string& tensor, int64_t bytes, int64_t piece_bytes) {
  sections_.push_back({tensor, bytes, piece_bytes, {}});
  data_bytes_ += bytes;
}

void ChecksumMaker::add(std::span<const std::byte> data) {
  while (!data.empty()) {
    while (at_ < sections_.size() && sections_[at_].bytes_left == 0) ++at_;
    FERRY_CHECK_LT(at_, sections_.size());
    Section& section = sections_[at_];
    if (!piece_) piece_.emplace();
    const int64_t room = std::min(section.piece_bytes - piece_filled_, section.bytes_left);
    const auto taken = std::min<std::size_t>(data.size(), static_cast<std::size_t>(room));
    piece_->add(data.first(taken));
    data = data.subspan(taken);
    piece_filled_ += static_cast<int64_t>(taken);
    section.bytes_left -= static_cast<int64_t>(taken);
    if (section.bytes_left == 0 || piece_filled_ == section.piece_bytes) end_piece(section);
  }
}

void ChecksumMaker::end_piece(Section& section) {
  section.pieces.push_back(piece_->value());
  piece_.reset();
  piece_filled_ = 0;
}

FileChecksums ChecksumMaker::take() {
  FileChecksums file{.bytes = header_bytes_ + data_bytes_, .header = header_, .pieces = {}};
  std::ranges::sort(sections_, {}, &Section::name);
  for (const Section& section : sections_) {
    FERRY_CHECK_EQ(section.bytes_left, 0) << section.name;
    file.pieces.insert(file.pieces.end(), section.pieces.begin(), section.pieces.end());
  }
  sections_.clear();
  return file;
}

void check_bytes(const TensorInfo& tensor, int64_t offset, int64_t bytes, ThreadPool* pool, Recheck recheck) {
  if (tensor.checksums == nullptr || bytes == 0) return;
  const TensorChecksums& sums = *tensor.checksums;
  FERRY_CHECK(offset >= 0 && bytes > 0 && offset <= tensor.bytes - bytes) << "check_bytes of " << tensor.name;
  const int64_t first = offset / sums.piece_bytes, count = (offset + bytes - 1) / sums.piece_bytes - first + 1;
  const auto check = [&](int64_t i, int) {
    const auto piece = static_cast<std::size_t>(first + i);
    const auto [begin, end] = piece_range(tensor, first + i);
    const bool is_whole = begin >= offset && end <= offset + bytes;
    if (sums.was_right[piece] && (recheck == Recheck::kNone || !is_whole)) return;
    const uint64_t found = content_hash({tensor.data + begin, static_cast<std::size_t>(end - begin)});
    if (found != sums.pieces[piece]) {
      refuse_tensor(tensor, "is damaged: bytes " + std::to_string(begin) + " to " + std::to_string(end - 1) +
                                " have the checksum " + checksum_text(found) + "; " + kChecksumsFile + " has " +
                                checksum_text(sums.pieces[piece]));
    }
    sums.was_right[piece] = true;
  };
  if (pool != nullptr && count > 1) return parallel_for_throwing(*pool, count, check);
  for (int64_t i = 0; i < count; ++i) check(i, 0);
}

}  // namespace ferry
