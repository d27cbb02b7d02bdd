#!/bin/sh
# neartie import logprobs on what llama.cpp itself answers: through a node binding, which gives
# probabilities in llama-server's older form.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99

# Prebuilt; kept in the build folder. NEARTIE_LLAMA_NODE_DIR: a folder with node_modules that has it.
store=$abs_top_builddir/tests/llama-node-npm version=1.7.15 why=''
if [ -n "$NEARTIE_LLAMA_NODE_DIR" ]; then
    store=$NEARTIE_LLAMA_NODE_DIR
elif ! command -v npm >/dev/null; then
    why="npm is not installed"
elif [ "$(uname -m)" != x86_64 ]; then
    why="the prebuilt binding is for x86_64"
elif [ ! -f "$store/complete" ]; then
    { mkdir -p "$store" &&
        timeout 180 npm install --ignore-scripts --omit=optional --no-audit --no-fund --no-save \
            --fetch-retries 0 --cache "$tmp/cache" --prefix "$store" "@fugood/llama.node@$version" \
            "@fugood/node-llama-linux-x64@$version" >npm.log 2>&1 && touch "$store/complete"; } ||
        why="npm cannot install @fugood/llama.node $version: $(tail -1 npm.log)"
fi
if [ -n "$why" ]; then
    skip "responses of llama.cpp" "$why"
    done_testing
fi
ln -s "$store/node_modules" node_modules
# Each prompt has a context of its own: the binding adds up probabilities over completions. At
# temperature 0 they would be 1 and 0.
cat >answer.js <<'EOT'
const fs = require('fs');
const { loadModel } = require('@fugood/llama.node');
const [model, out, type] = process.argv.slice(2);
const prompts = ['Once upon a time', 'The LORD said unto', 'There was a', 'In the beginning',
                 'My lord,', 'And it came to pass', 'The king', 'Now therefore', 'Behold,', 'O, that'];
(async () => {
  let lines = '';
  for (const prompt of prompts) {
    const context = await loadModel({ model, n_ctx: 256, n_threads: 1, n_gpu_layers: 0,
        flash_attn_type: 'on', cache_type_k: type, cache_type_v: type });
    const response = await context.completion({ prompt, temperature: 1, top_k: 0, top_p: 1, min_p: 0,
        penalty_repeat: 1, seed: 7, n_predict: 40, n_probs: 16 });
    lines += JSON.stringify({ request: { prompt }, response }) + '\n';
    await context.release();
  }
  fs.writeFileSync(out, lines);
})().catch(error => { console.error(error); process.exit(1); });
EOT
run timeout 300 node answer.js "$data/tiny-qwen3-q8_0.gguf" f16.jsonl f16
if [ "$status" != 0 ] && [ ! -s f16.jsonl ]; then
    skip "responses of llama.cpp" "the binding does not run here: $(grep -m1 -i error err)"
    done_testing
fi
ok "answers with another cache" timeout 300 node answer.js "$data/tiny-qwen3-q8_0.gguf" q8.jsonl q8_0
ok "answers again" timeout 300 node answer.js "$data/tiny-qwen3-q8_0.gguf" again.jsonl f16
ok "responses of llama.cpp become a record" \
    "$neartie" import logprobs -o run.db f16.jsonl q8.jsonl --arm f16 --arm q8_0 --class precision
is "nearly all of their tokens are in it" \
    "$(sqlite3 run.db "SELECT min(n) >= 30, count(*) FROM (SELECT count(*) AS n FROM logits GROUP BY seq_id)")" "1|20"
run "$neartie" verdict run.db
is "another type of the cache is no defect" "$status" 0
is "rows were compared, and differ" "$(sqlite3 run.db "SELECT count(*) > 20, sum(contrast <> 0) > 10 FROM pairs")" "1|1"
ok "the same again" "$neartie" import logprobs -o again.db f16.jsonl again.jsonl --class bitwise
run "$neartie" verdict again.db
is "is equal to the bit, all of it" \
    "$status $(sqlite3 again.db "SELECT count(*) = (SELECT count(*) FROM logits WHERE arm_id = 1), sum(contrast <> 0), sum(flip) FROM pairs")" \
    "0 1|0|0"
done_testing
