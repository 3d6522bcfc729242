#include "runtime/server/reflection/reflection_answer.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/support/status.h>

#include <set>
#include <string_view>

namespace ferry {
namespace {

namespace v1 = grpc::reflection::v1;
using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;
using Question = v1::ServerReflectionRequest;
using Response = v1::ServerReflectionResponse;

const DescriptorPool& pool() { return *DescriptorPool::generated_pool(); }

void set_error(Response& response, grpc::StatusCode code, std::string_view message) {
  response.mutable_error_response()->set_error_code(code);
  response.mutable_error_response()->set_error_message(std::string(message));
}

/// The file after those that it imports, each once.
void add_file(const FileDescriptor& file, std::set<const FileDescriptor*>& added, v1::FileDescriptorResponse& answer) {
  if (!added.insert(&file).second) return;
  for (int d = 0; d < file.dependency_count(); ++d) add_file(*file.dependency(d), added, answer);
  google::protobuf::FileDescriptorProto text;
  file.CopyTo(&text);
  *answer.add_file_descriptor_proto() = text.SerializeAsString();
}

/// `file` is null if there is none for what was asked.
void answer_with(const FileDescriptor* file, Response& response) {
  if (file == nullptr) return set_error(response, grpc::StatusCode::NOT_FOUND, "there is no such file, symbol or extension");
  std::set<const FileDescriptor*> added;
  add_file(*file, added, *response.mutable_file_descriptor_response());
}

const FileDescriptor* file_of(const v1::ExtensionRequest& request) {
  const Descriptor* const type = pool().FindMessageTypeByName(request.containing_type());
  const FieldDescriptor* const field =
      type == nullptr ? nullptr : pool().FindExtensionByNumber(type, request.extension_number());
  return field == nullptr ? nullptr : field->file();
}

void answer_extension_numbers(const std::string& name, Response& response) {
  const Descriptor* const type = pool().FindMessageTypeByName(name);
  if (type == nullptr) return set_error(response, grpc::StatusCode::NOT_FOUND, "there is no such message");
  std::vector<const FieldDescriptor*> extensions;
  pool().FindAllExtensions(type, &extensions);
  v1::ExtensionNumberResponse& answer = *response.mutable_all_extension_numbers_response();
  answer.set_base_type_name(name);
  for (const FieldDescriptor* extension : extensions) answer.add_extension_number(extension->number());
}

}  // namespace

Response answer_reflection(const Question& request, const std::vector<std::string>& services) {
  Response response;
  response.set_valid_host(request.host());
  *response.mutable_original_request() = request;
  switch (request.message_request_case()) {
    case Question::kFileByFilename: answer_with(pool().FindFileByName(request.file_by_filename()), response); break;
    case Question::kFileContainingSymbol:
      answer_with(pool().FindFileContainingSymbol(request.file_containing_symbol()), response);
      break;
    case Question::kFileContainingExtension: answer_with(file_of(request.file_containing_extension()), response); break;
    case Question::kAllExtensionNumbersOfType:
      answer_extension_numbers(request.all_extension_numbers_of_type(), response);
      break;
    case Question::kListServices:
      for (const std::string& name : services) response.mutable_list_services_response()->add_service()->set_name(name);
      break;
    default: set_error(response, grpc::StatusCode::UNIMPLEMENTED, "the request asks for nothing that this version knows");
  }
  return response;
}

}  // namespace ferry
