#include "runtime/server/picture_fetch.h"

#include <curl/curl.h>

#include <algorithm>
#include <exception>
#include <memory>
#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"

namespace ferry {
namespace {

constexpr int64_t kHeaderBytesMax = 64 << 10;

using Handle = std::unique_ptr<CURL, decltype(&curl_easy_cleanup)>;

/// A transfer under way, for libcurl's callbacks. They return what makes libcurl give up, and leave the reason here.
struct Transfer {
  CURL* handle;
  int64_t max_bytes;
  bool (*may_connect)(const sockaddr* address);
  const std::function<void()>& check_in;
  std::vector<std::byte> bytes;
  int64_t num_header_bytes = 0;
  bool is_elsewhere = false;  // an address was refused
  bool is_too_large = false;
  std::exception_ptr failure = nullptr;  // no memory, or what check_in threw
};

/// The only place where a socket is made, once for every address that is tried.
curl_socket_t open_socket(void* transfer, curlsocktype, curl_sockaddr* address) {
  Transfer& t = *static_cast<Transfer*>(transfer);
  if (!t.may_connect(&address->addr)) {
    t.is_elsewhere = true;
    return CURL_SOCKET_BAD;
  }
  return socket(address->family, address->socktype | SOCK_CLOEXEC, address->protocol);
}

std::size_t take_header(char*, std::size_t, std::size_t num_bytes, void* transfer) {
  Transfer& t = *static_cast<Transfer*>(transfer);
  t.num_header_bytes += static_cast<int64_t>(num_bytes);
  return t.num_header_bytes <= kHeaderBytesMax ? num_bytes : 0;
}

/// libcurl asks about once a second while nothing comes, also during a look-up.
int check_in(void* transfer, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  Transfer& t = *static_cast<Transfer*>(transfer);
  try {
    if (t.check_in) t.check_in();
    return 0;
  } catch (...) {
    t.failure = std::current_exception();
    return 1;
  }
}

long status_of(CURL* handle) {
  long status = 0;
  curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
  return status;
}

std::size_t take_body(char* data, std::size_t, std::size_t num_bytes, void* transfer) {
  Transfer& t = *static_cast<Transfer*>(transfer);
  if (status_of(t.handle) != 200) return 0;  // the status says enough
  t.is_too_large = static_cast<int64_t>(num_bytes) > t.max_bytes - std::ssize(t.bytes);
  if (t.is_too_large) return 0;
  try {
    const auto* begin = reinterpret_cast<const std::byte*>(data);
    t.bytes.insert(t.bytes.end(), begin, begin + num_bytes);
  } catch (...) {
    t.failure = std::current_exception();
    return 0;
  }
  return num_bytes;
}

/// An option that this libcurl does not know must not be left out: each is a part of the promise.
template <class Value>
void set(const Handle& handle, CURLoption option, Value value) {
  const CURLcode code = curl_easy_setopt(handle.get(), option, value);
  if (code != CURLE_OK)
    throw Error(ErrorCode::kInternal, "libcurl option " + std::to_string(option) + ": " + curl_easy_strerror(code));
}

void set_limits(const Handle& handle, const RemoteUrl& url, const RemotePictures& allowed) {
  const auto timeout = std::max(allowed.timeout, std::chrono::milliseconds(1));  // 0 would mean for ever
  set(handle, CURLOPT_URL, url.text().c_str());
  set(handle, CURLOPT_PROTOCOLS_STR, url.scheme.c_str());
  set(handle, CURLOPT_FOLLOWLOCATION, 0L);
  set(handle, CURLOPT_PROXY, "");  // whatever the environment says
  set(handle, CURLOPT_HTTP_VERSION, static_cast<long>(CURL_HTTP_VERSION_1_1));
  set(handle, CURLOPT_USERAGENT, "ferry");
  set(handle, CURLOPT_SSL_VERIFYPEER, 1L);
  set(handle, CURLOPT_SSL_VERIFYHOST, 2L);
  set(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(timeout.count()));
  set(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(std::min(timeout, allowed.connect_timeout).count()));
  set(handle, CURLOPT_NOSIGNAL, 1L);
  // A look-up that hangs would be waited for beyond the deadline; its thread ends by itself instead.
  set(handle, CURLOPT_QUICK_EXIT, 1L);
}

void set_callbacks(const Handle& handle, Transfer& transfer) {
  set(handle, CURLOPT_OPENSOCKETFUNCTION, open_socket);
  set(handle, CURLOPT_OPENSOCKETDATA, &transfer);
  set(handle, CURLOPT_HEADERFUNCTION, take_header);
  set(handle, CURLOPT_HEADERDATA, &transfer);
  set(handle, CURLOPT_WRITEFUNCTION, take_body);
  set(handle, CURLOPT_WRITEDATA, &transfer);
  set(handle, CURLOPT_XFERINFOFUNCTION, check_in);
  set(handle, CURLOPT_XFERINFODATA, &transfer);
  set(handle, CURLOPT_NOPROGRESS, 0L);
  set(handle, CURLOPT_MAXFILESIZE_LARGE, static_cast<curl_off_t>(transfer.max_bytes));  // as declared
}

[[noreturn]] void throw_failure(CURLcode code, const Transfer& transfer, const RemotePictures& allowed,
                                const std::string& what) {
  if (transfer.is_too_large || code == CURLE_FILESIZE_EXCEEDED)
    throw_invalid(what + " holds more than " + std::to_string(transfer.max_bytes) + " bytes; allowed: at most as many");
  if (code == CURLE_OPERATION_TIMEDOUT) {
    throw Error(ErrorCode::kDeadlineExceeded,
                what + " did not come within " + std::to_string(allowed.timeout.count()) + " ms, of which " +
                    std::to_string(std::min(allowed.timeout, allowed.connect_timeout).count()) + " to connect");
  }
  if (transfer.is_elsewhere && code == CURLE_COULDNT_CONNECT)
    throw_invalid(what + " is on a host without a public address; allowed: hosts of the internet");
  if (transfer.num_header_bytes > kHeaderBytesMax) {
    throw Error(ErrorCode::kUnavailable,
                what + ": headers of more than " + std::to_string(kHeaderBytesMax) + " bytes; allowed: at most as many");
  }
  throw Error(ErrorCode::kUnavailable, what + " cannot be fetched: " + curl_easy_strerror(code));
}

void check_status(long status, const std::string& what) {
  if (status == 200) return;
  const bool is_busy = status >= 500 || status == 429;
  throw Error(is_busy ? ErrorCode::kUnavailable : ErrorCode::kInvalidArgument,
              what + " is answered with status " + std::to_string(status) + "; allowed: 200, no redirects");
}

}  // namespace

std::vector<std::byte> fetch_remote(const RemoteUrl& url, const RemotePictures& allowed, const FetchTrust& trust,
                                    const std::string& name) {
  static const CURLcode kReady = curl_global_init(CURL_GLOBAL_DEFAULT);
  const Handle handle(kReady == CURLE_OK ? curl_easy_init() : nullptr, curl_easy_cleanup);
  if (!handle) throw Error(ErrorCode::kInternal, name + ": libcurl cannot be initialised");
  Transfer transfer{.handle = handle.get(),
                    .max_bytes = allowed.max_bytes,
                    .may_connect = trust.may_connect,
                    .check_in = allowed.check_in,
                    .bytes = {}};
  set_limits(handle, url, allowed);
  set_callbacks(handle, transfer);
  if (!trust.authorities.empty()) set(handle, CURLOPT_CAINFO, trust.authorities.c_str());
  const CURLcode code = curl_easy_perform(handle.get());
  const std::string what = name + ": " + in_quotes(url.text());
  const long status = status_of(handle.get());
  if (transfer.failure) std::rethrow_exception(transfer.failure);
  if (code == CURLE_OK || status >= 200) check_status(status, what);
  if (code != CURLE_OK) throw_failure(code, transfer, allowed, what);
  return std::move(transfer.bytes);
}

std::vector<std::byte> fetch_picture(const std::string& url, const RemotePictures& allowed, const std::string& name,
                                     const FetchTrust& trust) {
  return fetch_remote(parse_remote_url(url, allowed.hosts, name), allowed, trust, name);
}

}  // namespace ferry
