#include "runtime/server/access.h"

#include <arpa/inet.h>
#include <openssl/crypto.h>
#include <openssl/sha.h>

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/lower_case.h"
#include "runtime/base/quoting.h"
#include "runtime/base/text_file.h"
#include "runtime/net/host_port.h"
#include "runtime/net/hosts.h"
#include "runtime/net/own_hosts.h"

namespace ferry {
namespace {

constexpr std::size_t kMaxKeys = 1024;
constexpr int64_t kMaxFileBytes = int64_t{1} << 20;

bool is_key(std::string_view text) {
  const auto is_visible = [](char c) { return c > ' ' && c <= '~'; };
  return text.size() >= ApiKeys::kMinBytes && text.size() <= ApiKeys::kMaxBytes &&
         std::all_of(text.begin(), text.end(), is_visible);
}

/// Runs `read` and puts the option's name in front of what it throws.
template <class Read>
auto named(const char* option, Read&& read) {
  try {
    return read();
  } catch (const Error& error) {
    throw Error(error.code(), std::string(option) + ": " + error.what());
  }
}

/// The lines of a key file; empty ones and those that begin with '#' are none.
std::vector<std::string> key_lines(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (!line.empty() && line.front() != '#') lines.push_back(std::move(line));
    begin = end + 1;
  }
  return lines;
}

/// `host` as HTTP's Host is compared with it: without port and brackets, which would never match.
std::string allowed_host(const std::string& host) {
  in6_addr unused{};
  const bool has_port = host.find(':') != std::string::npos && inet_pton(AF_INET6, host.c_str(), &unused) != 1;
  if (host.empty() || has_port || host.find_first_of("[]") != std::string::npos)
    throw_invalid("--allowed-host: " + in_quotes(host) + "; allowed: a name or an address, without port and brackets");
  return lower_case(host);
}

/// `origin` as browsers send it: scheme, "://", host and port without a default one, and nothing else.
std::string allowed_origin(const std::string& origin) {
  if (origin == "*") return origin;
  const std::string lower = lower_case(origin);
  const std::size_t host = lower.find("://") + 3;
  const bool is_web = lower.starts_with("http://") || lower.starts_with("https://");
  const std::string rest = is_web ? lower.substr(host) : "";
  const std::size_t port = rest.find(':', rest.find(']') == std::string::npos ? 0 : rest.find(']'));
  const bool is_default = port != std::string::npos && rest.substr(port) == (lower.starts_with("https") ? ":443" : ":80");
  if (rest.empty() || is_default || rest.find_first_of("/?#@* ") != std::string::npos)
    throw_invalid("--allowed-origin: " + in_quotes(origin) +
                  "; allowed: * or http[s]://HOST[:PORT], as browsers send it: without a path or the scheme's own port");
  return lower;
}

std::string read_pem(const char* option, const std::filesystem::path& path) {
  return named(option, [&] {
    std::string text = read_text_file(path, kMaxFileBytes);
    if (text.find("-----BEGIN ") == std::string::npos) throw_invalid(path.string() + ": holds no PEM block");
    return text;
  });
}

}  // namespace

ApiKeys::ApiKeys(const std::vector<std::string>& keys) : ApiKeys(keys, {}) {}

ApiKeys::ApiKeys(const std::vector<std::string>& keys, std::vector<std::string> names) : names_(std::move(names)) {
  if (keys.size() > kMaxKeys)
    throw_invalid(std::to_string(keys.size()) + " keys; allowed: at most " + std::to_string(kMaxKeys));
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!is_key(keys[i])) {
      throw_invalid("key " + std::to_string(i + 1) + " has " + std::to_string(keys[i].size()) + " bytes; allowed: " +
                    std::to_string(kMinBytes) + " to " + std::to_string(kMaxBytes) + " printable characters without spaces");
    }
    digests_.push_back(digest_of(keys[i]));
    if (names_.size() < digests_.size()) names_.push_back("key " + std::to_string(i + 1));
  }
}

ApiKeys::Digest ApiKeys::digest_of(std::string_view text) {
  Digest digest{};
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(), digest.data());
  return digest;
}

std::optional<int> ApiKeys::find(std::string_view presented) const {
  // Digests have one length, and all of them are compared: time tells neither how much of a key was right nor which it was.
  const Digest digest = digest_of(presented.substr(0, kMaxBytes + 1));
  int found = -1;
  for (std::size_t i = 0; i < digests_.size(); ++i) {
    const int is_equal = CRYPTO_memcmp(digest.data(), digests_[i].data(), digest.size()) == 0;
    found = is_equal * static_cast<int>(i) + (1 - is_equal) * found;
  }
  return found < 0 ? std::nullopt : std::optional(found);
}

std::vector<std::string> read_key_file(const std::filesystem::path& file) {
  return named("--api-key-file", [&] {
    std::vector<std::string> lines = key_lines(read_text_file(file, kMaxFileBytes));
    if (lines.empty()) throw_invalid(file.string() + " holds no key; allowed: one key a line");
    ApiKeys{lines};
    return lines;
  });
}

Access load_access(const AccessOptions& options) {
  Access access;
  std::vector<std::string> keys, names;
  if (options.api_key) {
    named("FERRY_API_KEY", [&] { return ApiKeys({*options.api_key}); });
    keys.push_back(*options.api_key);
    names.emplace_back("FERRY_API_KEY");
  }
  if (!options.api_key_file.empty()) {
    const std::vector<std::string> lines = read_key_file(options.api_key_file);
    keys.insert(keys.end(), lines.begin(), lines.end());
    for (std::size_t i = 0; i < lines.size(); ++i) names.push_back("key " + std::to_string(i + 1));
  }
  access.keys = ApiKeys(keys, std::move(names));
  if (!options.tls_cert.empty()) {
    access.tls = TlsIdentity{.certificate_chain = read_pem("--tls-cert", options.tls_cert),
                             .private_key = read_pem("--tls-key", options.tls_key),
                             .client_ca = {}};
    if (!options.tls_client_ca.empty()) access.tls->client_ca = read_pem("--tls-client-ca", options.tls_client_ca);
  }
  for (const std::string& host : options.allowed_hosts) access.allowed_hosts.push_back(allowed_host(host));
  for (const std::string& origin : options.allowed_origins) access.allowed_origins.push_back(allowed_origin(origin));
  return access;
}

void allow_own_hosts(Access& access, const std::string& http_address) {
  if (http_address == "off" || !is_any_host(parse_host_port("--http", http_address).host)) return;
  for (const std::string& host : own_hosts()) access.allowed_hosts.push_back(host);
}

std::optional<std::string> allowed_names(const std::string& http_address, const Access& access) {
  if (!is_any_host(parse_host_port("--http", http_address).host)) return std::nullopt;
  std::string line = "http answers to the names localhost";
  for (const std::string& host : access.allowed_hosts) line += ", " + host;
  return line + "; --allowed-host adds others";
}

std::string_view presented_key(std::string_view authorization, std::string_view x_api_key) {
  constexpr std::string_view kScheme = "bearer ";
  const bool is_bearer = lower_case(authorization.substr(0, kScheme.size())) == kScheme;
  return is_bearer ? authorization.substr(kScheme.size()) : x_api_key;
}

std::optional<std::string> open_port_warning(const std::string& port, const std::string& address, const Access& access) {
  const std::string host = parse_host_port(port, address).host;
  const bool is_guarded = !access.keys.empty() || (access.tls && !access.tls->client_ca.empty());
  if (is_guarded || is_loopback_host(host)) return std::nullopt;
  return "the " + port + " port " + address + " is open to the network and asks for no key; --api-key-file sets keys";
}

}  // namespace ferry
