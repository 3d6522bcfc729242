#include "runtime/server/picture_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <openssl/evp.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "runtime/base/check.h"
#include "runtime/base/error.h"
#include "runtime/base/lower_case.h"
#include "runtime/base/quoting.h"
#include "runtime/net/percent_escape.h"
#include "runtime/server/public_address.h"

namespace ferry {
namespace {

constexpr std::string_view kDataScheme = "data:";
constexpr std::size_t kUrlBytesMax = 8192;  // of a remote one
constexpr std::size_t kHostBytesMax = 253;  // of a DNS name

bool is_letter_or_digit(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9'); }
bool is_white_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r' && c != '\v'); }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_white_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_white_space(text.back())) text.remove_suffix(1);
  return text;
}

/// The text before a data URL's comma: [TYPE][;PARAMETER…];base64.
void check_data_head(std::string_view head, const std::string& name) {
  const std::size_t last = head.rfind(';');
  if (last == std::string_view::npos || lower_case(trimmed(head.substr(last + 1))) != "base64")
    throw_invalid(name + ": data URL of " + in_quotes(head) + "; allowed: data in base64, data:image/TYPE;base64,DATA");
  const std::string type = lower_case(trimmed(head.substr(0, head.find(';'))));
  if (!type.empty() && !type.starts_with("image/") && type != "application/octet-stream")
    throw_invalid(name + ": data URL of type " + in_quotes(type) + "; allowed: image/…");
}

/// `data` in the plain alphabet, without white space, percent signs and padding: at most `max_chars` or an error.
std::string plain_base64(std::string_view data, std::size_t max_chars, const std::string& name) {
  std::string plain;
  plain.reserve(std::min(data.size(), max_chars) + 4);
  std::size_t num_padding = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    const std::size_t start = i;
    char c = data[i];
    if (const std::optional<char> escaped = percent_escape(data.substr(i))) {
      c = *escaped;
      i += 2;
    }
    if (is_white_space(c)) continue;
    if (c == '=') {
      ++num_padding;
      continue;
    }
    if (c == '-') c = '+';
    if (c == '_') c = '/';
    if (num_padding > 0 || !(is_letter_or_digit(c) || c == '+' || c == '/')) {
      throw_invalid(name + ": data URL has " + in_quotes(data.substr(start, i + 1 - start)) + " at byte " +
                    std::to_string(start) + " of its data; allowed: base64");
    }
    if (plain.size() == max_chars) return plain + c;  // too long, whatever follows
    plain += c;
  }
  if (plain.size() % 4 == 1 || num_padding > 2 || (num_padding > 0 && (plain.size() + num_padding) % 4 != 0)) {
    throw_invalid(name + ": data URL has " + std::to_string(plain.size()) + " characters of base64 and " +
                  std::to_string(num_padding) + " of padding; allowed: whole base64, padded to a multiple of 4 or not at all");
  }
  return plain;
}

/// A number of 1 to 5 digits in 1 ‥ 65535.
std::optional<int> parse_port(std::string_view text) {
  int port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  const bool is_number = error == std::errc() && end == text.data() + text.size() && text.size() <= 5;
  return is_number && port >= 1 && port <= 65535 ? std::optional(port) : std::nullopt;
}

bool is_host_character(char c) { return is_letter_or_digit(c) || c == '.' || c == '-' || c == '_'; }

/// A DNS name or an IPv4 address in its usual form; not 2130706433 or 0x7f.1, which libraries take for addresses, too.
bool is_host(const std::string& host) {
  if (host.empty() || host.size() > kHostBytesMax || !std::all_of(host.begin(), host.end(), is_host_character)) return false;
  if (host.front() == '.' || host.back() == '.' || host.find("..") != std::string::npos) return false;
  in_addr unused{};
  const char last = host[host.rfind('.') + 1];  // of the last label: no top-level domain begins with a digit
  return last < '0' || last > '9' || inet_pton(AF_INET, host.c_str(), &unused) == 1;
}

bool is_special_ipv4(const std::string& host) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  const bool is_ipv4 = inet_pton(AF_INET, host.c_str(), &address.sin_addr) == 1;
  return is_ipv4 && !is_public_address(reinterpret_cast<const sockaddr*>(&address));
}

std::string remote_host_entry(const std::string& entry) {
  const std::size_t colon = entry.find(':');
  const std::string host = lower_case(entry.substr(0, colon));
  const bool has_port = colon != std::string::npos;
  const std::optional<int> port = has_port ? parse_port(entry.substr(colon + 1)) : std::nullopt;
  if (!is_host(host) || has_port != port.has_value()) {
    throw_invalid(
        "--allow-remote-images: " + in_quotes(entry) +
        "; allowed: HOST or HOST:PORT, separated by commas: a name or an IPv4 address, without scheme, path and wildcard");
  }
  if (is_special_ipv4(host))
    throw_invalid("--allow-remote-images: " + in_quotes(entry) + " is no public address; allowed: hosts of the internet");
  return has_port ? host + ":" + std::to_string(*port) : host;
}

}  // namespace

bool is_data_url(std::string_view url) { return lower_case(url.substr(0, kDataScheme.size())) == kDataScheme; }

std::vector<std::byte> read_data_url(std::string_view url, int64_t max_bytes, const std::string& name) {
  FERRY_CHECK(max_bytes > 0 && max_bytes <= int64_t{1} << 30);
  const std::size_t comma = url.find(',');
  if (!is_data_url(url) || comma == std::string_view::npos)
    throw_invalid(name + ": " + in_quotes(url) + " is no data URL; allowed: data:image/TYPE;base64,DATA");
  check_data_head(url.substr(kDataScheme.size(), comma - kDataScheme.size()), name);
  const std::size_t max_chars = (static_cast<std::size_t>(max_bytes) * 4 + 2) / 3;
  std::string plain = plain_base64(url.substr(comma + 1), max_chars, name);
  if (plain.size() > max_chars)
    throw_invalid(name + ": data URL holds more than " + std::to_string(max_bytes) + " bytes; allowed: at most as many");
  const std::size_t num_bytes = plain.size() * 3 / 4;
  plain.append((4 - plain.size() % 4) % 4, 'A');  // what EVP_DecodeBlock takes: whole groups
  std::vector<std::byte> bytes(plain.size() / 4 * 3);
  const int decoded = EVP_DecodeBlock(reinterpret_cast<unsigned char*>(bytes.data()),
                                      reinterpret_cast<const unsigned char*>(plain.data()), static_cast<int>(plain.size()));
  FERRY_CHECK_EQ(decoded, static_cast<int>(bytes.size()));
  bytes.resize(num_bytes);
  return bytes;
}

RemoteUrl parse_remote_url(std::string_view url, const std::vector<std::string>& hosts, const std::string& name) {
  const auto refuse = [&](const std::string& why) { throw_invalid(name + ": " + in_quotes(url) + " " + why); };
  if (url.size() > kUrlBytesMax)
    refuse("has " + std::to_string(url.size()) + " bytes; allowed: at most " + std::to_string(kUrlBytesMax));
  if (!std::all_of(url.begin(), url.end(), [](char c) { return c > ' ' && c <= '~'; }))
    refuse("holds spaces, controls or characters beyond ASCII; allowed: them percent-encoded");
  RemoteUrl parsed;
  const std::size_t colon = url.find("://");
  parsed.scheme = lower_case(url.substr(0, colon));
  if (colon == std::string_view::npos || (parsed.scheme != "http" && parsed.scheme != "https"))
    refuse("is no URL of a picture; allowed: data:, http:// and https://");
  std::string_view rest = url.substr(colon + 3);
  rest = rest.substr(0, rest.find('#'));
  const std::size_t end = std::min(rest.find_first_of("/?"), rest.size());
  const std::string_view authority = rest.substr(0, end);
  const std::size_t port_colon = authority.find(':');
  parsed.host = lower_case(authority.substr(0, port_colon));
  if (!std::all_of(authority.begin(), authority.end(), [](char c) { return is_host_character(c) || c == ':'; }) ||
      parsed.host.empty())
    refuse("names no plain host; allowed: HOST or HOST:PORT, without user, password and IPv6 address");
  const int own_port = parsed.scheme == "http" ? 80 : 443;
  const std::optional<int> port =
      port_colon == std::string_view::npos ? own_port : parse_port(authority.substr(port_colon + 1));
  if (!port) refuse("has no port of 1 to 65535; allowed: HOST or HOST:PORT");
  parsed.port = *port;
  const auto is_this = [&](const std::string& entry) {
    const std::string allowed = lower_case(entry);
    return allowed == parsed.host + ":" + std::to_string(parsed.port) || (allowed == parsed.host && parsed.port == own_port);
  };
  if (std::none_of(hosts.begin(), hosts.end(), is_this))
    refuse("is on a host or port that is not allowed; allowed: data URLs" +
           std::string(hosts.empty() ? "" : ", and the hosts that --allow-remote-images names"));
  const std::string_view target = rest.substr(end);
  parsed.target = (target.starts_with('/') ? "" : "/") + std::string(target);
  return parsed;
}

std::vector<std::string> hosts_to_ask(std::span<const std::string_view> urls, const std::vector<std::string>& allowed) {
  std::set<std::string> asked;
  if (allowed.empty()) return {};
  for (const std::string_view url : urls) {
    if (is_data_url(url)) continue;
    try {
      asked.insert(parse_remote_url(url, allowed).host);
    } catch (const Error&) {  // the request is refused when its pictures are read
    }
  }
  return {asked.begin(), asked.end()};
}

std::vector<std::string> parse_remote_hosts(const std::string& text) {
  std::vector<std::string> hosts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find(',', begin), text.size());
    hosts.push_back(remote_host_entry(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return hosts;
}

}  // namespace ferry
