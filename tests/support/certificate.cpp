#include "tests/support/certificate.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <memory>

#include "runtime/base/check.h"

namespace ferry::test {
namespace {

template <auto Free>
struct Freer {
  template <class T>
  void operator()(T* object) const {
    Free(object);
  }
};
using Bio = std::unique_ptr<BIO, Freer<BIO_free_all>>;
using Key = std::unique_ptr<EVP_PKEY, Freer<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, Freer<X509_free>>;
using Extension = std::unique_ptr<X509_EXTENSION, Freer<X509_EXTENSION_free>>;

void add_extension(X509* certificate, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, certificate, certificate, nullptr, nullptr, 0);
  const Extension extension(X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  FERRY_CHECK(extension != nullptr) << value;
  FERRY_CHECK_EQ(X509_add_ext(certificate, extension.get(), -1), 1);
}

std::string text_of(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  return {data, static_cast<std::size_t>(size)};
}

}  // namespace

Certificate make_certificate(const std::string& name) {
  constexpr long kDay = 24 * 60 * 60;  // seconds
  const Key key(EVP_EC_gen("P-256"));
  const X509Ptr certificate(X509_new());
  FERRY_CHECK(key != nullptr && certificate != nullptr);
  X509_set_version(certificate.get(), 2);  // X.509 v3
  ASN1_INTEGER_set(X509_get_serialNumber(certificate.get()), 1);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), kDay);
  X509_set_pubkey(certificate.get(), key.get());
  X509_NAME* const subject = X509_get_subject_name(certificate.get());
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1, 0);
  X509_set_issuer_name(certificate.get(), subject);
  add_extension(certificate.get(), NID_basic_constraints, "critical,CA:TRUE");
  add_extension(certificate.get(), NID_subject_alt_name, "DNS:" + name + ",IP:127.0.0.1");
  FERRY_CHECK(X509_sign(certificate.get(), key.get(), EVP_sha256()) > 0);
  const Bio certificate_text(BIO_new(BIO_s_mem())), key_text(BIO_new(BIO_s_mem()));
  FERRY_CHECK_EQ(PEM_write_bio_X509(certificate_text.get(), certificate.get()), 1);
  FERRY_CHECK_EQ(PEM_write_bio_PrivateKey(key_text.get(), key.get(), nullptr, nullptr, 0, nullptr, nullptr), 1);
  return {.certificate = text_of(certificate_text.get()), .key = text_of(key_text.get())};
}

}  // namespace ferry::test
