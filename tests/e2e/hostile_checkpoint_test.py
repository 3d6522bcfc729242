"""A checkpoint whose chat template works for long, and what one API key learns of another."""

import concurrent.futures
import http.client
import json
import pathlib
import tempfile

import ferry_job

KEYS = ("key-of-the-first", "key-of-the-second")
# Searched for place by place, the second text would be compared with nearly all of the first one at each place.
LONG_SEARCH = """{%- if messages[0].content == 'search' -%}
{%- set text = 'a' * 20000000 -%}{{ text.find('a' * 10000000 ~ 'b') }}
{%- elif messages[0].content == 'loop' -%}
{%- set text = 'a' * 20000000 -%}{%- for i in range(99999) -%}{%- if text.startswith(text) -%}{%- endif -%}{%- endfor -%}
{%- endif -%}"""
PROMPT = "The river is a large natural stream of water. " * 20


class HostileCheckpointTest(ferry_job.JobTest):
    def serve(self, *arguments):
        folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for file in ferry_job.DEMO.iterdir():
            if file.is_file() and file.name != "tokenizer_config.json":
                (folder / file.name).symlink_to(file)
        config = json.loads((ferry_job.DEMO / "tokenizer_config.json").read_text())
        config["chat_template"] = LONG_SEARCH + config["chat_template"]
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
        (folder / "keys").write_text("\n".join(KEYS))
        return self.start("--api-key-file", str(folder / "keys"), *arguments, ranks=1, model=folder)

    def post(self, job, path, body, key=KEYS[0]):
        connection = http.client.HTTPConnection(job.http_address, timeout=ferry_job.CALL_SECONDS)
        headers = {"Content-Type": "application/json", "Authorization": f"Bearer {key}"}
        connection.request("POST", path, json.dumps(body), headers)
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, json.loads(text)

    def chat(self, job, content):
        return self.post(job, "/v1/chat/completions", {"messages": [{"role": "user", "content": content}], "max_tokens": 1})

    def cached_tokens(self, job, key):
        status, answer = self.post(job, "/v1/completions", {"prompt": PROMPT, "max_tokens": 1}, key)
        self.assertEqual(status, 200, answer)
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"]

    def test_such_chats_end_and_keys_learn_nothing_of_each_other(self):
        job = self.serve("--prefix-cache-scope", "key")
        with concurrent.futures.ThreadPoolExecutor(3) as pool:
            chats = [pool.submit(self.chat, job, "search") for _ in range(3)]
            self.assertEqual(self.cached_tokens(job, KEYS[0]), 0)
            for chat in chats:
                status, answer = chat.result()
                self.assertEqual(status, 200, answer)
        status, answer = self.chat(job, "loop")
        self.assertEqual(status, 400, answer)
        self.assertIn("it takes more than 50000000 steps", answer["error"]["message"])
        self.assertEqual(self.cached_tokens(job, KEYS[1]), 0)
        self.assertGreater(self.cached_tokens(job, KEYS[0]), 0)
        self.assertGreater(self.cached_tokens(job, KEYS[1]), 0)
        job.terminate()
        self.assertEqual(job.wait(), 0, job.log())

    def test_keys_share_a_cache_by_default(self):
        job = self.serve()
        self.assertEqual(self.cached_tokens(job, KEYS[0]), 0)
        self.assertGreater(self.cached_tokens(job, KEYS[1]), 0)


if __name__ == "__main__":
    ferry_job.main()
