#include "runtime/text/unicode_text.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <vector>

#include "runtime/base/check.h"

namespace ferry {
namespace {

uint8_t byte_at(std::string_view bytes, size_t i) { return static_cast<uint8_t>(bytes[i]); }

/// The values that the second byte of a character may have, by its first byte (table 3-7). num_bytes 0: not a first byte.
struct LeadByte {
  size_t num_bytes = 0;
  uint8_t second_min = 0x80;
  uint8_t second_max = 0xBF;
};

LeadByte lead_byte(uint8_t b) {
  if (b < 0x80) return {1};
  if (b < 0xC2) return {0};
  if (b < 0xE0) return {2};
  if (b == 0xE0) return {3, 0xA0, 0xBF};
  if (b == 0xED) return {3, 0x80, 0x9F};
  if (b < 0xF0) return {3};
  if (b == 0xF0) return {4, 0x90, 0xBF};
  if (b == 0xF4) return {4, 0x80, 0x8F};
  if (b < 0xF4) return {4};
  return {0};
}

/// Below U+0300 every character is its own NFC form and combines with nothing before it, so text without a lead byte above
/// that of U+02FF (0xCB) needs no work.
bool is_trivially_nfc(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto b = static_cast<uint8_t>(c);
    return b < 0xC0 ? true : b <= 0xCB;
  });
}

struct CodePointRange {
  utf8proc_int32_t first;
  utf8proc_int32_t last;
};

/// Marks (and two vowel signs, one made of the other) that came after Unicode 9. Hugging Face's tokenizers compose by the
/// tables of Unicode 9, so to them these neither move nor combine nor come apart; the ids that a model was trained on follow
/// from that.
constexpr std::array<CodePointRange, 38> kMarksAfterUnicode9 = {{
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},     {0xC3C, 0xC3C},     {0xD3B, 0xD3C},
    {0xEBA, 0xEBA},     {0x1715, 0x1715},   {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85}, {0x11070, 0x11070}, {0x1133B, 0x1133B},
    {0x1145E, 0x1145E}, {0x11839, 0x1183A}, {0x11930, 0x11930}, {0x11938, 0x11938}, {0x1193D, 0x1193E}, {0x11943, 0x11943},
    {0x119E0, 0x119E0}, {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42}, {0x11D44, 0x11D45},
    {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1}, {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE},
    {0x1E2EC, 0x1E2EF}, {0x1E4EC, 0x1E4EF},
}};

bool is_mark_after_unicode9(utf8proc_int32_t code_point) {
  if (code_point < kMarksAfterUnicode9.front().first) return false;
  const auto after = std::upper_bound(kMarksAfterUnicode9.begin(), kMarksAfterUnicode9.end(), code_point,
                                      [](utf8proc_int32_t c, const CodePointRange& range) { return c < range.first; });
  return code_point <= std::prev(after)->last;
}

int combining_class(utf8proc_int32_t code_point) {
  const int value = utf8proc_get_property(code_point)->combining_class;
  return value == 0 || is_mark_after_unicode9(code_point) ? 0 : value;
}

/// Sorts every run of combining marks by combining class, keeping the order within a class. utf8proc can do this itself, but
/// by insertion, which is quadratic in the length of a run.
void order_marks(std::vector<utf8proc_int32_t>& code_points) {
  for (size_t begin = 0; begin < code_points.size();) {
    if (combining_class(code_points[begin]) == 0) {
      ++begin;
      continue;
    }
    size_t end = begin + 1;
    while (end < code_points.size() && combining_class(code_points[end]) != 0) ++end;
    std::stable_sort(code_points.begin() + static_cast<ptrdiff_t>(begin), code_points.begin() + static_cast<ptrdiff_t>(end),
                     [](auto a, auto b) { return combining_class(a) < combining_class(b); });
    begin = end;
  }
}

/// Appends the canonical decomposition of one character.
void append_decomposition(utf8proc_int32_t code_point, std::vector<utf8proc_int32_t>& out) {
  if (is_mark_after_unicode9(code_point)) {
    out.push_back(code_point);
    return;
  }
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_DECOMPOSE | UTF8PROC_STABLE);
  std::array<utf8proc_int32_t, 32> parts{};  // the longest canonical decomposition has 4 parts
  int boundary_class = 0;
  const auto num_parts = utf8proc_decompose_char(code_point, parts.data(), parts.size(), kOptions, &boundary_class);
  FERRY_CHECK(num_parts >= 0 && num_parts <= static_cast<utf8proc_ssize_t>(parts.size())) << " utf8proc gave " << num_parts;
  out.insert(out.end(), parts.begin(), parts.begin() + num_parts);
}

/// Composes in place, each stretch between marks that do not combine by itself; shortens the vector.
void compose(std::vector<utf8proc_int32_t>& code_points) {
  constexpr auto kOptions = static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE);
  size_t num_kept = 0;
  for (size_t begin = 0; begin < code_points.size();) {
    size_t end = begin + 1;
    while (end < code_points.size() && !is_mark_after_unicode9(code_points[end])) ++end;
    const auto num_composed =
        utf8proc_normalize_utf32(code_points.data() + begin, static_cast<utf8proc_ssize_t>(end - begin), kOptions);
    FERRY_CHECK_GE(num_composed, 0);
    for (size_t i = 0; i < static_cast<size_t>(num_composed); ++i) code_points[num_kept++] = code_points[begin + i];
    begin = end;
  }
  code_points.resize(num_kept);
}

/// The character at the start of `text`, or -1 where that is malformed; sets its length.
utf8proc_int32_t character_at_start(std::string_view text, size_t& num_bytes) {
  const Utf8Step step = next_utf8(text);
  num_bytes = step.num_bytes;
  if (step.kind != Utf8Step::Kind::kCharacter) return -1;
  utf8proc_int32_t code_point = -1;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(step.num_bytes),
                   &code_point);
  return code_point;
}

}  // namespace

Utf8Step next_utf8(std::string_view bytes) {
  FERRY_CHECK(!bytes.empty());
  const LeadByte lead = lead_byte(byte_at(bytes, 0));
  if (lead.num_bytes == 0) return {Utf8Step::Kind::kMalformed, 1};
  for (size_t i = 1; i < lead.num_bytes; ++i) {
    if (i == bytes.size()) return {Utf8Step::Kind::kIncomplete, i};
    const uint8_t min = i == 1 ? lead.second_min : uint8_t{0x80};
    const uint8_t max = i == 1 ? lead.second_max : uint8_t{0xBF};
    if (byte_at(bytes, i) < min || byte_at(bytes, i) > max) return {Utf8Step::Kind::kMalformed, i};
  }
  return {Utf8Step::Kind::kCharacter, lead.num_bytes};
}

size_t append_utf8_lossy(std::string_view bytes, CutCharacter cut, std::string& out) {
  size_t good_begin = 0;  // bytes [good_begin, i) are well-formed and not yet copied
  size_t i = 0;
  while (i < bytes.size()) {
    const Utf8Step step = next_utf8(bytes.substr(i));
    if (step.kind == Utf8Step::Kind::kCharacter) {
      i += step.num_bytes;
      continue;
    }
    out.append(bytes.substr(good_begin, i - good_begin));
    if (step.kind == Utf8Step::Kind::kIncomplete && cut == CutCharacter::kKeepBack) return i;
    out.append(kReplacementCharacter);
    i += step.num_bytes;
    good_begin = i;
  }
  out.append(bytes.substr(good_begin));
  return bytes.size();
}

std::string repair_utf8(std::string_view bytes) {
  std::string out;
  out.reserve(bytes.size());
  append_utf8_lossy(bytes, CutCharacter::kReplace, out);
  return out;
}

bool is_utf8(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size();) {
    const Utf8Step step = next_utf8(bytes.substr(i));
    if (step.kind != Utf8Step::Kind::kCharacter) return false;
    i += step.num_bytes;
  }
  return true;
}

std::string to_nfc(std::string_view text) {
  if (is_trivially_nfc(text)) return std::string(text);
  std::vector<utf8proc_int32_t> code_points;
  code_points.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    size_t num_bytes = 0;
    const utf8proc_int32_t code_point = character_at_start(text.substr(i), num_bytes);
    FERRY_CHECK_GE(code_point, 0) << "to_nfc needs well-formed UTF-8";
    append_decomposition(code_point, code_points);
    i += num_bytes;
  }
  order_marks(code_points);
  compose(code_points);
  std::string out;
  out.reserve(text.size());
  for (const utf8proc_int32_t code_point : code_points) {
    std::array<utf8proc_uint8_t, 4> encoded{};
    const auto num_bytes = utf8proc_encode_char(code_point, encoded.data());
    out.append(reinterpret_cast<const char*>(encoded.data()), static_cast<size_t>(num_bytes));
  }
  return out;
}

bool is_python_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || (c >= 0x1C && c <= 0x20) || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

std::string_view strip_white_space(std::string_view text) { return strip_white_space_right(strip_white_space_left(text)); }

std::string_view strip_white_space_left(std::string_view text) {
  while (!text.empty()) {
    size_t num_bytes = 0;
    const utf8proc_int32_t c = character_at_start(text, num_bytes);
    if (c < 0 || !is_python_space(static_cast<char32_t>(c))) break;
    text.remove_prefix(num_bytes);
  }
  return text;
}

std::string_view strip_white_space_right(std::string_view text) {
  while (!text.empty()) {
    size_t begin = text.size() - 1;
    while (begin > 0 && text.size() - begin < 4 && (byte_at(text, begin) & 0xC0U) == 0x80U) --begin;
    size_t num_bytes = 0;
    const utf8proc_int32_t c = character_at_start(text.substr(begin), num_bytes);
    if (c < 0 || !is_python_space(static_cast<char32_t>(c)) || begin + num_bytes != text.size()) break;
    text.remove_suffix(num_bytes);
  }
  return text;
}

}  // namespace ferry
