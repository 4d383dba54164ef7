// Node's clients against a running `genie serve`: openai and the AI SDK. See clients.py.

import assert from "node:assert/strict";
import OpenAI from "openai";
import Anthropic from "@anthropic-ai/sdk";
import { createOpenAI } from "@ai-sdk/openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText, generateObject, tool, jsonSchema, APICallError } from "ai";
import { z } from "zod";

const url = process.env.GENIE_URL;
const apiKey = process.env.GENIE_KEY;
const baseURL = `${url}/v1`;
const messages = [{ role: "user", content: "ROMEO:" }];
const parameters = {
  type: "object",
  properties: { place: { type: "string", enum: ["sea", "land"] }, far: { type: "boolean" } },
  required: ["place", "far"],
  additionalProperties: false,
};
const functionTool = { type: "function", function: { name: "look", parameters } };
const checks = [];
const check = (name, run) => checks.push([name, run]);

function isLook(input) {
  const found = typeof input === "string" ? JSON.parse(input) : input;
  assert.ok(["sea", "land"].includes(found.place) && typeof found.far === "boolean", JSON.stringify(found));
}

const openai = (key = apiKey) => new OpenAI({ baseURL, apiKey: key, maxRetries: 0 });

check("openai_node_chat", async () => {
  const ask = { model: "demo", messages, max_tokens: 12, temperature: 0 };
  const whole = await openai().chat.completions.create(ask);
  let said = "";
  for await (const chunk of await openai().chat.completions.create({ ...ask, stream: true })) {
    said += chunk.choices[0]?.delta?.content ?? "";
  }
  assert.equal(said, whole.choices[0].message.content);
  assert.ok(said.length > 0);
});

check("openai_node_tools", async () => {
  const ask = { model: "demo", messages, max_tokens: 100, tools: [functionTool] };
  await openai().chat.completions.create({ ...ask, max_tokens: 8 });
  const forced = await openai().chat.completions.create({ ...ask, tool_choice: "required" });
  isLook(forced.choices[0].message.tool_calls[0].function.arguments);
  const stream = openai().chat.completions.stream({ ...ask, tool_choice: "required" });
  isLook((await stream.finalChatCompletion()).choices[0].message.tool_calls[0].function.arguments);
});

check("openai_node_structured", async () => {
  const reply = await openai().chat.completions.create({
    model: "demo", messages, max_tokens: 100,
    response_format: { type: "json_schema", json_schema: { name: "a", strict: true, schema: parameters } },
  });
  isLook(reply.choices[0].message.content);
});

check("openai_node_responses", async () => {
  const ask = { model: "demo", input: "ROMEO:", max_output_tokens: 20, temperature: 0 };
  const whole = await openai().responses.create(ask);
  let said = "";
  for await (const event of await openai().responses.create({ ...ask, stream: true })) {
    if (event.type === "response.output_text.delta") said += event.delta;
  }
  assert.equal(said, whole.output_text);
});

check("openai_node_errors", async () => {
  await assert.rejects(openai().chat.completions.create({ model: "demo", messages, temperature: -1 }), OpenAI.BadRequestError);
  await assert.rejects(openai("wrong").models.list(), OpenAI.AuthenticationError);
  await assert.rejects(openai().models.retrieve("none-such"), OpenAI.NotFoundError);
});

check("openai_node_abort", async () => {
  const abort = new AbortController();
  const stream = await openai().chat.completions.create(
    { model: "demo", messages, max_tokens: 200, stream: true }, { signal: abort.signal });
  for await (const _ of stream) abort.abort();
});

check("anthropic_node", async () => {
  const client = new Anthropic({ baseURL: url, apiKey, maxRetries: 0 });
  const ask = { model: "demo", max_tokens: 100, messages };
  const whole = await client.messages.create({ ...ask, max_tokens: 10, temperature: 0 });
  const stream = client.messages.stream({ ...ask, max_tokens: 10, temperature: 0 });
  assert.equal((await stream.finalMessage()).content[0].text, whole.content[0].text);
  const tools = [{ name: "look", input_schema: parameters }];
  const forced = await client.messages.create({ ...ask, tools, tool_choice: { type: "any" } });
  isLook(forced.content[0].input);
  await assert.rejects(client.messages.create({ ...ask, temperature: -1 }), Anthropic.BadRequestError);
});

const sdk = (key = apiKey) => createOpenAI({ baseURL, apiKey: key });
const compatible = createOpenAICompatible({ name: "genie", baseURL, apiKey, includeUsage: true, supportsStructuredOutputs: true });
const models = [["responses", () => sdk()("demo")], ["chat", () => sdk().chat("demo")], ["compatible", () => compatible("demo")]];
const look = tool({ description: "Looks somewhere", inputSchema: jsonSchema(parameters) });

for (const [kind, model] of models) {
  check(`ai_sdk_${kind}_text`, async () => {
    const ask = { model: model(), prompt: "ROMEO:", maxOutputTokens: 20, temperature: 0, maxRetries: 0 };
    const whole = await generateText(ask);
    let said = "";
    for await (const piece of streamText(ask).textStream) said += piece;
    assert.equal(said, whole.text);
    assert.ok(said.length > 0);
  });
  check(`ai_sdk_${kind}_tools`, async () => {
    const ask = { model: model(), prompt: "ROMEO:", maxOutputTokens: 100, tools: { look }, maxRetries: 0 };
    await generateText({ ...ask, maxOutputTokens: 20 });
    const forced = await generateText({ ...ask, toolChoice: "required" });
    assert.equal(forced.toolCalls[0].toolName, "look");
    isLook(forced.toolCalls[0].input);
    const named = streamText({ ...ask, toolChoice: { type: "tool", toolName: "look" } });
    isLook((await named.toolCalls)[0].input);
  });
  check(`ai_sdk_${kind}_object`, async () => {
    const { object } = await generateObject({
      model: model(), prompt: "ROMEO:", schema: z.object({ sure: z.boolean() }), maxOutputTokens: 60, maxRetries: 0,
    });
    assert.equal(typeof object.sure, "boolean");
  });
}

check("ai_sdk_errors", async () => {
  const ask = { model: sdk("wrong").chat("demo"), prompt: "x", maxRetries: 0 };
  await assert.rejects(generateText(ask), (error) => APICallError.isInstance(error) && error.statusCode === 401);
});

let failed = 0;
const wanted = process.argv.slice(2);
for (const [name, run] of checks) {
  if (wanted.length && !wanted.some((word) => name.startsWith(word))) continue;
  const began = Date.now();
  try {
    await run();
    console.log(`ok     ${name} (${((Date.now() - began) / 1000).toFixed(1)} s)`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED ${name}\n${error.stack}`);
  }
}
console.log(`${failed} failed`);
process.exit(failed ? 1 : 0);
