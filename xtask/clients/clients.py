"""Python clients against a running `genie serve`: each as its documents say it is used, in all the ways the server knows.

Started by `cargo xtask clients`, which sets GENIE_URL (without /v1) and GENIE_KEY. Prints a line for each check; ends with 1 if any failed.
"""

import json
import os
import sys
import time
import traceback

URL = os.environ["GENIE_URL"]
KEY = os.environ["GENIE_KEY"]
V1 = URL + "/v1"
CHECKS = []
ROMEO = [{"role": "user", "content": "ROMEO:"}]
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "enum": ["yes", "no"]}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}
LOOK = {
    "type": "object",
    "properties": {"place": {"type": "string", "enum": ["sea", "land"]}, "far": {"type": "boolean"}},
    "required": ["place", "far"],
}
TOOL = {"type": "function", "function": {"name": "look", "description": "Looks somewhere", "parameters": LOOK}}


def check(function):
    CHECKS.append(function)
    return function


def is_look(arguments):
    found = json.loads(arguments) if isinstance(arguments, str) else arguments
    assert found["place"] in ("sea", "land") and isinstance(found["far"], bool), found


def raises(kind, call):
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}")


# openai


def openai_client(key=KEY):
    import openai

    return openai.OpenAI(base_url=V1, api_key=key, max_retries=0)


@check
def openai_chat():
    reply = openai_client().chat.completions.create(model="demo", messages=ROMEO, max_tokens=12, temperature=0)
    choice = reply.choices[0]
    assert choice.message.content and choice.finish_reason == "length" and reply.usage.completion_tokens == 12, reply


@check
def openai_stream():
    client = openai_client()
    whole = client.chat.completions.create(model="demo", messages=ROMEO, max_tokens=12, temperature=0)
    stream = client.chat.completions.create(
        model="demo", messages=ROMEO, max_tokens=12, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    chunks = list(stream)
    said = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
    assert said == whole.choices[0].message.content, (said, whole)
    assert chunks[-1].usage.completion_tokens == 12


@check
def openai_tools_auto():
    reply = openai_client().chat.completions.create(
        model="demo", messages=ROMEO, max_tokens=12, temperature=0, tools=[TOOL], tool_choice="auto"
    )
    message = reply.choices[0].message
    assert message.content or message.tool_calls, reply


@check
def openai_tools_forced():
    for choice in ["required", {"type": "function", "function": {"name": "look"}}]:
        reply = openai_client().chat.completions.create(
            model="demo", messages=ROMEO, max_tokens=100, tools=[TOOL], tool_choice=choice
        )
        call = reply.choices[0].message.tool_calls[0]
        assert call.function.name == "look" and reply.choices[0].finish_reason == "tool_calls", reply
        is_look(call.function.arguments)


@check
def openai_tools_forced_stream():
    with openai_client().chat.completions.stream(
        model="demo", messages=ROMEO, max_tokens=100, tools=[TOOL], tool_choice="required"
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_completion()
    call = final.choices[0].message.tool_calls[0]
    assert call.function.name == "look", final
    is_look(call.function.arguments)


@check
def openai_tool_round_trip():
    client = openai_client()
    first = client.chat.completions.create(
        model="demo", messages=ROMEO, max_tokens=100, tools=[TOOL], tool_choice="required"
    )
    message = first.choices[0].message
    messages = [*ROMEO, message, {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "waves"}]
    second = client.chat.completions.create(model="demo", messages=messages, max_tokens=8, tools=[TOOL])
    assert second.choices[0].finish_reason in ("length", "stop", "tool_calls")


@check
def openai_structured():
    import pydantic

    class Answer(pydantic.BaseModel):
        answer: str = pydantic.Field(pattern="^(yes|no)$")
        sure: bool

    client = openai_client()
    reply = client.chat.completions.parse(model="demo", messages=ROMEO, max_tokens=100, response_format=Answer)
    assert reply.choices[0].message.parsed.answer in ("yes", "no"), reply
    plain = client.chat.completions.create(
        model="demo",
        messages=ROMEO,
        max_tokens=100,
        response_format={"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}},
    )
    assert json.loads(plain.choices[0].message.content)["answer"] in ("yes", "no")


@check
def openai_n_logprobs_seed():
    ask = dict(model="demo", messages=ROMEO, max_tokens=5, n=2, seed=3, temperature=1, logprobs=True, top_logprobs=2)
    client = openai_client()
    one, two = client.chat.completions.create(**ask), client.chat.completions.create(**ask)
    assert [c.message.content for c in one.choices] == [c.message.content for c in two.choices]
    assert len(one.choices) == 2 and len(one.choices[1].logprobs.content) == 5, one
    assert len(one.choices[0].logprobs.content[0].top_logprobs) == 2


@check
def openai_completions():
    client = openai_client()
    whole = client.completions.create(model="demo", prompt="ROMEO:", max_tokens=9, temperature=0, logprobs=2)
    assert whole.choices[0].text and len(whole.choices[0].logprobs.token_logprobs) == 9, whole
    assert "".join(whole.choices[0].logprobs.tokens) == whole.choices[0].text
    stream = client.completions.create(model="demo", prompt="ROMEO:", max_tokens=9, temperature=0, stream=True)
    assert "".join(c.choices[0].text for c in stream) == whole.choices[0].text


@check
def openai_responses():
    client = openai_client()
    whole = client.responses.create(model="demo", input="ROMEO:", max_output_tokens=20, temperature=0)
    assert whole.output_text and whole.status == "incomplete", whole
    with client.responses.stream(model="demo", input="ROMEO:", max_output_tokens=20, temperature=0) as stream:
        said = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
    assert said == whole.output_text


@check
def openai_responses_tools_forced():
    tool = {"type": "function", "name": "look", "parameters": LOOK, "strict": False}
    reply = openai_client().responses.create(
        model="demo", input="ROMEO:", max_output_tokens=100, tools=[tool], tool_choice="required"
    )
    call = next(item for item in reply.output if item.type == "function_call")
    assert call.name == "look", reply
    is_look(call.arguments)


@check
def openai_responses_structured():
    import pydantic

    class Answer(pydantic.BaseModel):
        sure: bool

    reply = openai_client().responses.parse(model="demo", input="ROMEO:", max_output_tokens=60, text_format=Answer)
    assert isinstance(reply.output_parsed.sure, bool), reply


@check
def openai_models():
    models = openai_client().models.list()
    assert openai_client().models.retrieve(models.data[0].id).id == models.data[0].id


@check
def openai_errors():
    import openai

    client = openai_client()
    create = client.chat.completions.create
    error = raises(openai.BadRequestError, lambda: create(model="demo", messages=ROMEO, temperature=-1))
    assert error.param == "temperature", error
    long = [{"role": "user", "content": "word " * 3000}]
    error = raises(openai.BadRequestError, lambda: create(model="demo", messages=long))
    assert error.code == "context_length_exceeded", error
    raises(openai.AuthenticationError, lambda: openai_client("wrong").models.list())
    raises(openai.NotFoundError, lambda: client.models.retrieve("none-such"))
    error = raises(openai.APIStatusError, lambda: client.embeddings.create(model="demo", input="x"))
    assert error.status_code == 501, error


@check
def openai_async():
    import asyncio

    import openai

    async def go():
        async with openai.AsyncOpenAI(base_url=V1, api_key=KEY, max_retries=0) as client:
            ask = lambda: client.chat.completions.create(model="demo", messages=ROMEO, max_tokens=6, temperature=0)
            replies = await asyncio.gather(*(ask() for _ in range(6)))
            assert len({reply.choices[0].message.content for reply in replies}) == 1

    asyncio.run(go())


# anthropic


def anthropic_client(key=KEY):
    import anthropic

    return anthropic.Anthropic(base_url=URL, api_key=key, max_retries=0)


# Its newest version has no argument for it.
GREEDY = {"temperature": 0}
CLAUDE_TOOL = {"name": "look", "description": "Looks somewhere", "input_schema": LOOK}


@check
def anthropic_chat():
    client = anthropic_client()
    reply = client.messages.create(
        model="demo", max_tokens=12, extra_body=GREEDY, system="Be brief.", messages=ROMEO
    )
    assert reply.content[0].text and reply.stop_reason == "max_tokens", reply
    counted = client.messages.count_tokens(model="demo", system="Be brief.", messages=ROMEO)
    assert counted.input_tokens == reply.usage.input_tokens + (reply.usage.cache_read_input_tokens or 0)


@check
def anthropic_stream():
    client = anthropic_client()
    whole = client.messages.create(model="demo", max_tokens=12, extra_body=GREEDY, messages=ROMEO)
    with client.messages.stream(model="demo", max_tokens=12, extra_body=GREEDY, messages=ROMEO) as stream:
        said = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert said == whole.content[0].text and final.usage.output_tokens == 12, (said, whole)


@check
def anthropic_tools_auto():
    reply = anthropic_client().messages.create(
        model="demo", max_tokens=12, extra_body=GREEDY, messages=ROMEO, tools=[CLAUDE_TOOL]
    )
    assert reply.content, reply


@check
def anthropic_tools_forced():
    client = anthropic_client()
    for choice in [{"type": "any"}, {"type": "tool", "name": "look"}]:
        ask = dict(model="demo", max_tokens=100, messages=ROMEO, tools=[CLAUDE_TOOL], tool_choice=choice)
        reply = client.messages.create(**ask)
        assert reply.stop_reason == "tool_use" and reply.content[0].name == "look", reply
        is_look(reply.content[0].input)
        with client.messages.stream(**ask) as stream:
            final = stream.get_final_message()
        assert final.stop_reason == "tool_use", final
        is_look(final.content[0].input)
        result = {"type": "tool_result", "tool_use_id": final.content[0].id, "content": "waves"}
        messages = [*ROMEO, {"role": "assistant", "content": final.content}, {"role": "user", "content": [result]}]
        client.messages.create(model="demo", max_tokens=6, messages=messages, tools=[CLAUDE_TOOL])


@check
def anthropic_errors():
    import anthropic

    client = anthropic_client()
    error = raises(
        anthropic.BadRequestError,
        lambda: client.messages.create(model="demo", max_tokens=4, extra_body={"temperature": -1}, messages=ROMEO),
    )
    assert error.body["error"]["type"] == "invalid_request_error", error.body
    error = raises(
        anthropic.AuthenticationError,
        lambda: anthropic_client("wrong").messages.create(model="demo", max_tokens=4, messages=ROMEO),
    )
    assert error.body["type"] == "error" and error.body["error"]["type"] == "authentication_error", error.body
    raises(
        anthropic.BadRequestError,
        lambda: client.messages.create(model="d", max_tokens=4, messages=[{"role": "user", "content": "word " * 3000}]),
    )


# litellm


def lite(**more):
    import litellm

    litellm.suppress_debug_info = True
    ask = dict(model="openai/demo", api_base=V1, api_key=KEY, messages=ROMEO, max_tokens=12, num_retries=0)
    return litellm.completion(**{**ask, **more})


@check
def litellm_chat():
    reply = lite(temperature=0)
    stream = lite(temperature=0, stream=True)
    said = "".join(c.choices[0].delta.content or "" for c in stream)
    assert said == reply.choices[0].message.content != "", (said, reply)


@check
def litellm_tools():
    assert lite(tools=[TOOL], tool_choice="auto").choices[0].message is not None
    reply = lite(tools=[TOOL], tool_choice="required", max_tokens=100)
    is_look(reply.choices[0].message.tool_calls[0].function.arguments)


@check
def litellm_structured():
    format = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": SCHEMA}}
    assert json.loads(lite(response_format=format, max_tokens=100).choices[0].message.content)["answer"] in ("yes", "no")


@check
def litellm_errors():
    import litellm

    raises(litellm.ContextWindowExceededError, lambda: lite(messages=[{"role": "user", "content": "word " * 3000}]))
    raises(litellm.AuthenticationError, lambda: lite(api_key="wrong"))
    raises(litellm.BadRequestError, lambda: lite(temperature=-1))


# langchain-openai


def chain(**more):
    from langchain_openai import ChatOpenAI

    ask = dict(model="demo", base_url=V1, api_key=KEY, max_tokens=12, temperature=0, max_retries=0)
    return ChatOpenAI(**{**ask, **more})


@check
def langchain_chat():
    reply = chain().invoke("ROMEO:")
    said = "".join(chunk.content for chunk in chain().stream("ROMEO:"))
    assert said == reply.content != "" and reply.usage_metadata["output_tokens"] == 12, (said, reply)


@check
def langchain_tools():
    chain().bind_tools([TOOL]).invoke("ROMEO:")
    for choice in ["required", "look"]:
        reply = chain(max_tokens=100).bind_tools([TOOL], tool_choice=choice).invoke("ROMEO:")
        assert reply.tool_calls[0]["name"] == "look", reply
        is_look(reply.tool_calls[0]["args"])


@check
def langchain_structured():
    import pydantic

    class Answer(pydantic.BaseModel):
        """An answer."""

        sure: bool

    for method in ["json_schema", "function_calling"]:
        reply = chain(max_tokens=100).with_structured_output(Answer, method=method).invoke("ROMEO:")
        assert isinstance(reply.sure, bool), reply


@check
def langchain_errors():
    import openai

    raises(openai.BadRequestError, lambda: chain(temperature=-1).invoke("x"))
    raises(openai.AuthenticationError, lambda: chain(api_key="wrong").invoke("x"))


# pydantic-ai


def pydantic_model():
    from pydantic_ai.models.openai import OpenAIChatModel
    from pydantic_ai.providers.openai import OpenAIProvider

    return OpenAIChatModel("demo", provider=OpenAIProvider(base_url=V1, api_key=KEY))


@check
def pydantic_ai_chat():
    from pydantic_ai import Agent

    agent = Agent(pydantic_model(), model_settings={"max_tokens": 12, "temperature": 0})
    whole = agent.run_sync("ROMEO:").output
    import asyncio

    async def stream():
        async with agent.run_stream("ROMEO:") as result:
            return [text async for text in result.stream_text()][-1]

    assert asyncio.run(stream()).strip() == whole.strip() != ""


@check
def pydantic_ai_structured():
    import pydantic
    from pydantic_ai import Agent, NativeOutput

    class Answer(pydantic.BaseModel):
        sure: bool

    for kind in [Answer, NativeOutput(Answer)]:
        agent = Agent(pydantic_model(), output_type=kind, model_settings={"max_tokens": 120, "temperature": 0})
        assert isinstance(agent.run_sync("ROMEO:").output.sure, bool)


@check
def pydantic_ai_tools():
    from pydantic_ai import Agent

    seen = []
    agent = Agent(pydantic_model(), model_settings={"max_tokens": 12, "temperature": 0})

    @agent.tool_plain
    def look(far: bool) -> str:
        seen.append(far)
        return "waves"

    assert agent.run_sync("ROMEO:").output


@check
def pydantic_ai_errors():
    from pydantic_ai import Agent
    from pydantic_ai.exceptions import ModelHTTPError

    agent = Agent(pydantic_model(), model_settings={"temperature": -1})
    assert raises(ModelHTTPError, lambda: agent.run_sync("x")).status_code == 400


# instructor


@check
def instructor_modes():
    import instructor
    import pydantic

    class Answer(pydantic.BaseModel):
        sure: bool

    for mode in [instructor.Mode.TOOLS, instructor.Mode.JSON, instructor.Mode.JSON_SCHEMA]:
        client = instructor.from_openai(openai_client(), mode=mode)
        reply = client.chat.completions.create(
            model="demo", messages=ROMEO, max_tokens=100, response_model=Answer, max_retries=0
        ) if mode != instructor.Mode.JSON else client.chat.completions.create(
            model="demo",
            messages=ROMEO,
            max_tokens=100,
            response_model=Answer,
            max_retries=0,
            extra_body={"json_schema": Answer.model_json_schema()},
        )
        assert isinstance(reply.sure, bool), (mode, reply)


@check
def instructor_partial_stream():
    import instructor
    import pydantic

    class Answer(pydantic.BaseModel):
        sure: bool

    client = instructor.from_openai(openai_client(), mode=instructor.Mode.TOOLS)
    parts = list(
        client.chat.completions.create_partial(model="demo", messages=ROMEO, max_tokens=100, response_model=Answer)
    )
    assert isinstance(parts[-1].sure, bool), parts


@check
def instructor_anthropic():
    import instructor
    import pydantic

    class Answer(pydantic.BaseModel):
        sure: bool

    client = instructor.from_anthropic(anthropic_client())
    reply = client.messages.create(
        model="demo", messages=ROMEO, max_tokens=100, response_model=Answer, max_retries=0
    )
    assert isinstance(reply.sure, bool), reply


def main():
    wanted = sys.argv[1:]
    failed = 0
    for function in CHECKS:
        name = function.__name__
        if wanted and not any(name.startswith(word) for word in wanted):
            continue
        began = time.monotonic()
        try:
            function()
        except Exception:
            failed += 1
            print(f"FAILED {name}\n{traceback.format_exc()}", flush=True)
        else:
            print(f"ok     {name} ({time.monotonic() - began:.1f} s)", flush=True)
    print(f"{failed} failed", flush=True)
    return 1 if failed else 0


sys.exit(main())
