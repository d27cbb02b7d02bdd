// A node program that generates with llama.cpp through node-llama-cpp. It prints, for every token
// that it was given, what it saw: the step of the program, position of the row, token, and its
// probability.
//   node llama_node.mjs node-llama-cpp/dist/index.js MODEL [flash]
import { pathToFileURL } from "node:url";

const [, , library, modelPath, flash] = process.argv;
const { getLlama, LlamaLogLevel, DraftSequenceTokenPredictor } =
    await import(pathToFileURL(library).href);
const llama = await getLlama({
    gpu: false, build: "never", skipDownload: true, maxThreads: 1, logLevel: LlamaLogLevel.error,
});
const model = await llama.loadModel({ modelPath });
const options = {
    contextSize: 256, batchSize: 12, threads: 1, flashAttention: flash === "flash",
};
const context = await model.createContext({ ...options, sequences: 2 });
const slots = [context.getSequence(), context.getSequence()];

async function generate(step, sequence, tokens, n) {
    const seen = [], lines = [];
    let pos = sequence.nextTokenIndex + tokens.length - 1;
    const steps = sequence.evaluateWithMetadata(tokens, { confidence: true }, { temperature: 0 });
    for await (const { token, confidence } of steps) {
        lines.push(`${step} ${pos++} ${token} ${confidence.toFixed(4)}`);
        seen.push(token);
        if (seen.length === n)
            break;
    }
    return { seen, lines };
}
const print = (...results) => results.forEach(({ lines }) => console.log(lines.join("\n")));

// Two texts side by side; a prompt is longer than a batch.
const first = model.tokenize("In the beginning God created the heaven and the earth. And the earth");
const second = model.tokenize("To be, or not to be, that is the");
const [one, two] = await Promise.all([
    generate("parallel-1", slots[0], first, 24),
    generate("parallel-2", slots[1], second, 9),
]);
print(one, two);

// Another turn of the first text, behind what it holds.
print(await generate("turn", slots[0], model.tokenize(" And God said,"), 4));

// The first prompt once more, from the cache but for its last token.
await slots[0].eraseContextTokenRanges([{ start: first.length - 1, end: slots[0].nextTokenIndex }]);
print(await generate("hit", slots[0], first.slice(-1), 5));

// Every step of the first text as the prompt of a cold run.
for (let n = 1; n < one.seen.length; n++) {
    await slots[1].clearHistory();
    print(await generate("cold", slots[1], [...first, ...one.seen.slice(0, n)], 1));
}

// The same text with a draft: the model checks several tokens at once.
const drafting = await model.createContext({ ...options, sequences: 1 });
const checking = await model.createContext({ ...options, sequences: 1 });
const tokenPredictor = new DraftSequenceTokenPredictor(drafting.getSequence(),
    { minTokens: 3, maxTokens: 4, minConfidence: 0 });
const checked = await generate("draft", checking.getSequence({ tokenPredictor }), first, 16);
console.log(checked.seen.join() === one.seen.slice(0, 16).join() ? "draft agrees" : "draft differs");
for (const each of [drafting, checking, context, model, llama])
    await each.dispose();
