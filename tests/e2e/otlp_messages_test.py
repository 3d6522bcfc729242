"""The spans of otlp_test.py as OpenTelemetry's own messages read them.

Needs PyPI once, for a virtual environment of its own (build/otlp-venv); skipped without. Environment: FERRY_BINARY (default
build/release/launch/ferry).
"""

import base64
import json
import unittest

import own_venv


def check_export(body):
    """OTLP's JSON is the protobuf message's: ids are hexadecimal in the one and base64 in the other, all else is the same."""
    export = json.loads(body)
    for resource in export["resourceSpans"]:
        for scope in resource["scopeSpans"]:
            for span in scope["spans"]:
                for holder in (span, *span.get("links", [])):
                    for name in ("traceId", "spanId", "parentSpanId"):
                        if name in holder:
                            holder[name] = base64.b64encode(bytes.fromhex(holder[name])).decode()
    json_format.Parse(json.dumps(export), trace_service_pb2.ExportTraceServiceRequest())


if __name__ == "__main__":
    own_venv.use_venv("otlp-venv", "otlp_requirements.txt")
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1 import trace_service_pb2

    import otlp_test
    from otlp_test import CaptureTest, OtlpTest  # noqa: F401

    otlp_test.check_export = check_export
    unittest.main(verbosity=2)
