#include "runtime/server/reflection/reflection_service.h"

#include <google/protobuf/descriptor.pb.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "grpc/reflection/v1/reflection.grpc.pb.h"
#include "tests/support/eventually.h"

namespace ferry {
namespace {

namespace v1 = grpc::reflection::v1;

/// A server with nothing but reflection, and a client in the same process.
class ReflectionServiceTest : public testing::Test {
 protected:
  ReflectionServiceTest() {
    grpc::ServerBuilder builder;
    builder.RegisterService(service_.get());
    server_ = builder.BuildAndStart();
    channel_ = server_->InProcessChannel({});
    context_.set_deadline(std::chrono::system_clock::now() + kTestLimit);
  }

  using Stream = grpc::ClientReaderWriter<v1::ServerReflectionRequest, v1::ServerReflectionResponse>;
  std::unique_ptr<Stream> ask() { return v1::ServerReflection::NewStub(channel_)->ServerReflectionInfo(&context_); }

  static v1::ServerReflectionResponse answer(Stream& stream, const v1::ServerReflectionRequest& question) {
    v1::ServerReflectionResponse response;
    EXPECT_TRUE(stream.Write(question));
    EXPECT_TRUE(stream.Read(&response));
    EXPECT_EQ(response.original_request().SerializeAsString(), question.SerializeAsString());
    return response;
  }

  std::shared_ptr<grpc::Service> service_ = make_reflection_service({"ferry.v1.Inference", "ferry.v1.Experts"});
  std::unique_ptr<grpc::Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
  grpc::ClientContext context_;
};

/// The names of the files in an answer.
std::vector<std::string> files_of(const v1::ServerReflectionResponse& response) {
  std::vector<std::string> names;
  for (const std::string& text : response.file_descriptor_response().file_descriptor_proto()) {
    google::protobuf::FileDescriptorProto file;
    EXPECT_TRUE(file.ParseFromString(text));
    names.push_back(file.name());
  }
  return names;
}

TEST_F(ReflectionServiceTest, AnswersEachQuestionOfACall) {
  const std::unique_ptr<Stream> stream = ask();
  v1::ServerReflectionRequest question;
  question.set_list_services("*");
  const v1::ServerReflectionResponse list = answer(*stream, question);
  ASSERT_EQ(list.list_services_response().service_size(), 2);
  EXPECT_EQ(list.list_services_response().service(1).name(), "ferry.v1.Experts");
  question.set_file_containing_symbol("ferry.v1.Inference.Generate");
  EXPECT_EQ(files_of(answer(*stream, question)), std::vector<std::string>{"ferry/v1/inference.proto"});
  question.set_file_by_filename("vllm/engine.proto");
  const std::vector<std::string> files = files_of(answer(*stream, question));
  ASSERT_FALSE(files.empty());
  EXPECT_EQ(files.back(), "vllm/engine.proto") << "what a file imports comes before it";
  question.set_all_extension_numbers_of_type("ferry.v1.GenerateRequest");
  EXPECT_EQ(answer(*stream, question).all_extension_numbers_response().base_type_name(), "ferry.v1.GenerateRequest");
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ReflectionServiceTest, WhatIsNotThereIsAnErrorAndTheCallGoesOn) {
  const std::unique_ptr<Stream> stream = ask();
  v1::ServerReflectionRequest question;
  question.set_file_containing_symbol("no.such.Symbol");
  EXPECT_EQ(answer(*stream, question).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  question.mutable_file_containing_extension()->set_containing_type("ferry.v1.GenerateRequest");
  EXPECT_EQ(answer(*stream, question).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  question.set_all_extension_numbers_of_type("no.such.Message");
  EXPECT_EQ(answer(*stream, question).error_response().error_code(), grpc::StatusCode::NOT_FOUND);
  question.clear_message_request();
  EXPECT_EQ(answer(*stream, question).error_response().error_code(), grpc::StatusCode::UNIMPLEMENTED);
  stream->WritesDone();
  EXPECT_TRUE(stream->Finish().ok());
}

TEST_F(ReflectionServiceTest, LongQuestionsAreNotParsed) {
  const std::unique_ptr<Stream> stream = ask();
  v1::ServerReflectionRequest question;
  question.set_host(std::string(kReflectionBytes, 'h'));
  EXPECT_TRUE(stream->Write(question));
  v1::ServerReflectionResponse response;
  EXPECT_FALSE(stream->Read(&response));
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_NE(status.error_message().find("4096"), std::string::npos) << status.error_message();
}

}  // namespace
}  // namespace ferry
