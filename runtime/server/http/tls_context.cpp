#include "runtime/server/http/tls_context.h"

#include <openssl/ssl.h>

#include <boost/asio/buffer.hpp>
#include <string>

#include "runtime/base/error.h"
#include "runtime/server/http/tls_check.h"

namespace ferry {
namespace {

namespace ssl = boost::asio::ssl;
using boost::system::error_code;

/// TLS 1.2 gets only ciphers with a new key for each connection and authenticated encryption (RFC 9325, section 4.2).
/// TLS 1.3 has no others.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20";

void require(const error_code& error, const char* option) {
  if (error) throw_invalid(std::string(option) + ": cannot be used: " + error.message());
}

}  // namespace

ssl::context make_tls_context(const TlsIdentity& identity) {
  ssl::context context(ssl::context::tls_server);
  context.set_options(ssl::context::default_workarounds | ssl::context::no_sslv2 | ssl::context::no_sslv3 |
                      ssl::context::no_tlsv1 | ssl::context::no_tlsv1_1 | SSL_OP_NO_RENEGOTIATION);
  if (SSL_CTX_set_cipher_list(context.native_handle(), kCiphers) != 1)
    throw Error(ErrorCode::kInternal, "TLS: OpenSSL has none of the ciphers that are allowed");
  // A key with a password would have OpenSSL ask for it on the terminal.
  context.set_password_callback([](std::size_t, ssl::context::password_purpose) { return std::string(); });
  error_code error;
  context.use_certificate_chain(boost::asio::buffer(identity.certificate_chain), error);
  require(error, "--tls-cert");
  context.use_private_key(boost::asio::buffer(identity.private_key), ssl::context::pem, error);
  require(error, "--tls-key");
  if (SSL_CTX_check_private_key(context.native_handle()) != 1) throw_invalid("--tls-key: is not the key of --tls-cert");
  if (!identity.client_ca.empty()) {
    context.add_certificate_authority(boost::asio::buffer(identity.client_ca), error);
    require(error, "--tls-client-ca");
    context.set_verify_mode(ssl::verify_peer | ssl::verify_fail_if_no_peer_cert);
  }
  // No session is resumed: a handshake always checks the client's certificate.
  SSL_CTX_set_session_cache_mode(context.native_handle(), SSL_SESS_CACHE_OFF);
  context.set_options(SSL_OP_NO_TICKET);
  return context;
}

void check_tls(const Access& access) {
  if (access.tls) make_tls_context(*access.tls);
}

}  // namespace ferry
