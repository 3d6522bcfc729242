#include "launch/top/status_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/quoting.h"
#include "runtime/options/top_options.h"
#include "runtime/server/access.h"
#include "runtime/server/live/live_json.h"

namespace ferry {
namespace {

constexpr const char* kAllowedTargets = "; allowed: HOST:PORT, or http[s]://HOST[:PORT][/PATH]";

using Url = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

/// The part of an address, empty if it has none.
std::string part_of(const Url& url, CURLUPart part) {
  char* text = nullptr;
  if (curl_url_get(url.get(), part, &text, 0) != CURLUE_OK) return "";
  std::string copy(text);
  curl_free(text);
  return copy;
}

template <class Value>
void set(CURL* handle, CURLoption option, Value value) {
  const CURLcode code = curl_easy_setopt(handle, option, value);
  if (code != CURLE_OK)
    throw Error(ErrorCode::kInternal, "libcurl option " + std::to_string(option) + ": " + curl_easy_strerror(code));
}

std::string first_key(const TopOptions& options) {
  if (!options.api_key) return options.api_key_file.empty() ? "" : read_key_file(options.api_key_file).front();
  try {
    ApiKeys({*options.api_key});
  } catch (const Error& error) {
    throw Error(error.code(), std::string("FERRY_API_KEY: ") + error.what());
  }
  return *options.api_key;
}

}  // namespace

StatusTarget make_target(const TopOptions& options) {
  const bool has_scheme = options.target.find("://") != std::string::npos;
  const std::string given = has_scheme ? options.target : (options.asks_for_tls() ? "https://" : "http://") + options.target;
  const Url url(curl_url(), curl_url_cleanup);
  const bool is_url = url && curl_url_set(url.get(), CURLUPART_URL, given.c_str(), CURLU_DISALLOW_USER) == CURLUE_OK;
  const std::string scheme = is_url ? part_of(url, CURLUPART_SCHEME) : "";
  const bool is_plain = part_of(url, CURLUPART_QUERY).empty() && part_of(url, CURLUPART_FRAGMENT).empty();
  const bool has_port = has_scheme || !part_of(url, CURLUPART_PORT).empty();
  if ((scheme != "http" && scheme != "https") || !is_plain || !has_port)
    throw_invalid("target " + in_quotes(options.target) + kAllowedTargets);
  if (scheme == "http" && options.asks_for_tls())
    throw_invalid("target " + in_quotes(options.target) +
                  ": --tls-ca and --tls-cert are for https; allowed: https://HOST[:PORT]");
  std::string server = part_of(url, CURLUPART_URL);
  while (server.ends_with('/')) server.pop_back();
  return {.server = server,
          .status_url = server + "/status.json",
          .key = first_key(options),
          .ca_file = options.tls_ca,
          .cert_file = options.tls_cert,
          .key_file = options.tls_key};
}

/// libcurl's handles, and the answer as far as it has come.
class StatusClient::Impl {
 public:
  Impl(StatusTarget target, const StatusTimes& times) : target_(std::move(target)) {
    if (!easy_ || !multi_) throw Error(ErrorCode::kInternal, "libcurl cannot be initialised");
    CURL* const handle = easy_.get();
    set(handle, CURLOPT_URL, target_.status_url.c_str());
    set(handle, CURLOPT_PROTOCOLS_STR, "http,https");
    set(handle, CURLOPT_FOLLOWLOCATION, 0L);
    set(handle, CURLOPT_PROXY, "");  // whatever the environment says: a key is for the server alone
    set(handle, CURLOPT_USERAGENT, "ferry top");
    set(handle, CURLOPT_TIMEOUT_MS, static_cast<long>(times.answer.count()));
    set(handle, CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(times.connect.count()));
    set(handle, CURLOPT_NOSIGNAL, 1L);
    set(handle, CURLOPT_QUICK_EXIT, 1L);  // a look-up that hangs is not waited for
    set(handle, CURLOPT_WRITEFUNCTION, take_body);
    set(handle, CURLOPT_WRITEDATA, &body_);
    if (!target_.ca_file.empty()) set(handle, CURLOPT_CAINFO, target_.ca_file.c_str());
    if (!target_.cert_file.empty()) {
      set(handle, CURLOPT_SSLCERT, target_.cert_file.c_str());
      set(handle, CURLOPT_SSLKEY, target_.key_file.c_str());
    }
    if (target_.key.empty()) return;
    headers_.reset(curl_slist_append(nullptr, ("Authorization: Bearer " + target_.key).c_str()));
    set(handle, CURLOPT_HTTPHEADER, headers_.get());
  }
  ~Impl() { drop(); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  const StatusTarget& target() const { return target_; }
  bool is_asking() const { return is_asking_; }

  void ask() {
    drop();
    body_.clear();
    is_asking_ = curl_multi_add_handle(multi_.get(), easy_.get()) == CURLM_OK;
    if (!is_asking_) throw Error(ErrorCode::kInternal, "libcurl takes no question");
  }

  std::optional<StatusAnswer> wait(std::span<const int> descriptors, std::chrono::milliseconds timeout) {
    if (std::optional<StatusAnswer> answer = advance()) return answer;
    std::vector<curl_waitfd> waited;
    for (const int descriptor : descriptors) waited.push_back({.fd = descriptor, .events = CURL_WAIT_POLLIN, .revents = 0});
    curl_multi_poll(multi_.get(), waited.data(), static_cast<unsigned>(waited.size()), static_cast<int>(timeout.count()),
                    nullptr);
    return advance();
  }

 private:
  struct FreeEasy {
    void operator()(CURL* handle) const { curl_easy_cleanup(handle); }
  };
  struct FreeMulti {
    void operator()(CURLM* handle) const { curl_multi_cleanup(handle); }
  };
  struct FreeList {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };

  static std::size_t take_body(char* data, std::size_t, std::size_t num_bytes, void* body) {
    auto& text = *static_cast<std::string*>(body);
    if (std::ssize(text) + static_cast<int64_t>(num_bytes) > kMaxBytes) return 0;
    text.append(data, num_bytes);
    return num_bytes;
  }

  void drop() {
    if (std::exchange(is_asking_, false)) curl_multi_remove_handle(multi_.get(), easy_.get());
  }

  std::optional<StatusAnswer> advance() {
    if (!is_asking_) return std::nullopt;
    int num_running = 0;
    if (curl_multi_perform(multi_.get(), &num_running) != CURLM_OK) throw Error(ErrorCode::kInternal, "libcurl cannot go on");
    int num_left = 0;
    const CURLMsg* const message = curl_multi_info_read(multi_.get(), &num_left);
    if (message == nullptr || message->msg != CURLMSG_DONE) return std::nullopt;
    const CURLcode code = message->data.result;
    drop();
    return judge(code);
  }

  StatusAnswer judge(CURLcode code) {
    long status = 0;
    curl_easy_getinfo(easy_.get(), CURLINFO_RESPONSE_CODE, &status);
    if (code == CURLE_WRITE_ERROR)
      return {.body = {}, .complaint = target_.server + " answers with more than 1 MiB: it is no Ferry", .is_refused = true};
    if (code != CURLE_OK) return {.body = {}, .complaint = target_.server + " is away: " + curl_easy_strerror(code)};
    if (status == 200) return {.body = std::move(body_), .complaint = {}};
    const std::string message = error_message_of(body_);
    const std::string answered = target_.server + " answers with status " + std::to_string(status);
    return {.body = {},
            .complaint = one_line(message.empty() ? answered : answered + ": " + message),
            .is_refused = status < 500 && status != 429};
  }

  const StatusTarget target_;
  std::string body_;
  bool is_asking_ = false;
  std::unique_ptr<curl_slist, FreeList> headers_;
  std::unique_ptr<CURL, FreeEasy> easy_{curl_easy_init()};
  std::unique_ptr<CURLM, FreeMulti> multi_{curl_multi_init()};
};

StatusClient::StatusClient(StatusTarget target, const StatusTimes& times)
    : impl_(std::make_unique<Impl>(std::move(target), times)) {}
StatusClient::~StatusClient() = default;
const StatusTarget& StatusClient::target() const { return impl_->target(); }
void StatusClient::ask() { impl_->ask(); }
bool StatusClient::is_asking() const { return impl_->is_asking(); }
std::optional<StatusAnswer> StatusClient::wait(std::span<const int> descriptors, std::chrono::milliseconds timeout) {
  return impl_->wait(descriptors, timeout);
}

}  // namespace ferry
