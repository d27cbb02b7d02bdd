#!/bin/sh
# neartie import logprobs: responses of servers become a record, whole or not at all. The files are
# written here, in the forms that the servers document; none was made by a server.
. "${abs_top_srcdir:?}/tests/testlib.sh"
cd "$tmp" || exit 99
command -v python3 >/dev/null || {
    skip "import logprobs" "python3 is not installed: it writes the files"
    done_testing
}

# Two arms of one small model: scores that depend on the prefix alone, and noise; in every form.
cat >write.py <<'EOT'
import json, math, os, random

V, K = 40, 5
TEXT = [chr(97 + i) if i < 26 else "\u00e9" if i == 26 else "\u20ac" if i == 27 else " w%d" % i
        for i in range(V)]

def logprobs(prefix, noise, rng):
    base = random.Random(repr(prefix))
    x = [base.gauss(0, 3) + rng.gauss(0, noise) for _ in range(V)]
    lse = math.log(sum(map(math.exp, x)))
    return [v - lse for v in x]

def generate(prompt, n, noise, seed):
    rng, out, ids = random.Random(seed), [], list(prompt)
    for _ in range(n):
        lp = logprobs(ids, noise, rng)
        order = sorted(range(V), key=lambda i: (-lp[i], i))
        out.append((order[0], [(i, lp[i]) for i in order[:K]]))
        ids.append(order[0])
    return out

def octets(i):
    return list(TEXT[i].encode())

def chat(out, ids=False):
    def entry(i, v):
        return {"token": "token_id:%d" % i if ids else TEXT[i], "logprob": v, "bytes": octets(i)}
    return {"id": "chatcmpl-%d" % random.getrandbits(32), "object": "chat.completion",
            "model": "tiny", "choices": [{"index": 0, "message": {"content": "x"}, "logprobs": {
                "content": [dict(entry(c, dict(l)[c]), top_logprobs=[entry(i, v) for i, v in l])
                            for c, l in out]}}]}

def legacy(out):
    return {"object": "text_completion", "choices": [{"index": 0, "text": "x", "logprobs": {
        "tokens": [TEXT[c] for c, l in out],
        "token_logprobs": [dict(l)[c] for c, l in out],
        "top_logprobs": [{TEXT[i]: v for i, v in l} for c, l in out],
        "text_offset": list(range(len(out)))}}]}

def sglang(out):
    return {"text": "x", "meta_info": {
        "id": "1", "output_token_logprobs": [[dict(l)[c], c, None] for c, l in out],
        "output_top_logprobs": [[[v, i, TEXT[i]] for i, v in l] for c, l in out]}}

def llama(out):
    def entry(i, v):
        return {"id": i, "token": TEXT[i], "bytes": octets(i), "logprob": v}
    return {"content": "x", "completion_probabilities": [
        dict(entry(c, dict(l)[c]), top_logprobs=[entry(i, v) for i, v in l]) for c, l in out]}

def older_llama(out):
    return {"content": "x", "completion_probabilities": [
        {"content": TEXT[c], "probs": [{"tok_str": TEXT[i], "prob": math.exp(v)} for i, v in l]}
        for c, l in out]}

def put(path, lines):
    with open(path, "w") as f:
        for line in lines:
            f.write(json.dumps(line) + "\n")

prompts = [[p, p + 1, 7] for p in range(12)]
arms = {}
for arm, seed in ("a", 1), ("b", 2):
    outs = arms[arm] = [generate(p, 30, 0.02, seed * 100 + k) for k, p in enumerate(prompts)]
    both = list(zip(prompts, outs))
    put("chat-%s.jsonl" % arm, ({"request": {"messages": [{"role": "user", "content": "p%d" % p[0]}]},
                                 "response": chat(o)} for p, o in both))
    put("batch-%s.jsonl" % arm, ({"id": "vllm-1", "custom_id": "r%d" % p[0], "error": None,
                                  "response": {"status_code": 200, "body": chat(o)}} for p, o in both))
    put("ids-%s.jsonl" % arm, (dict(chat(o, True), prompt_token_ids=p) for p, o in both))
    put("legacy-%s.jsonl" % arm, ({"request": {"prompt": "p%d" % p[0]}, "response": legacy(o)}
                                  for p, o in both))
    put("sglang-%s.jsonl" % arm, ({"request": {"input_ids": p}, "response": sglang(o)}
                                  for p, o in both))
    put("llama-%s.jsonl" % arm, ({"request": {"prompt": p}, "response": llama(o)} for p, o in both))
    put("older-%s.jsonl" % arm, (dict(older_llama(o), prompt="p%d" % p[0]) for p, o in both))
    put("bare-%s.jsonl" % arm, (chat(o) for p, o in both))
    with open("stream-%s.jsonl" % arm, "w") as f: # server-sent events, a token each
        for p, o in both:
            head = {"id": "chatcmpl-%s-%d" % (arm, p[0]), "object": "chat.completion.chunk"}
            for token in o:
                f.write("data: %s\n\n" % json.dumps(dict(chat([token]), **head)))
            f.write("data: [DONE]\n\n")

# What must be found: comparable positions, flips, margins.
n = flips = 0
for a, b in zip(arms["a"], arms["b"]):
    for (ca, _), (cb, _) in zip(a, b):
        n += 1
        flips += ca != cb
        if ca != cb:
            break
margins = [sum(l[0][1] - l[1][1] for o in outs for _, l in o) for outs in arms.values()]
with open("want.txt", "w") as f:
    f.write("%d|%d\n%.2f\n%.2f\n" % (n, flips, *margins))

# One line that is right, and what is wrong with others; each is the second line of its file.
good = {"request": {"prompt": "p"}, "response": legacy(arms["a"][0])}
def chat_with(**changes):
    line = {"request": {"prompt": "q"}, "response": chat(arms["a"][1])}
    line["response"]["choices"][0]["logprobs"]["content"][4]["top_logprobs"][2].update(changes)
    return line
def sglang_with(entry):
    line = {"request": {"prompt": "q"}, "response": sglang(arms["a"][1])}
    line["response"]["meta_info"]["output_top_logprobs"][3][1] = entry
    return line
def content(value):
    return {"request": {"prompt": "q"}, "response": {"choices": [{"logprobs": {"content": value}}]}}
hostile = "'; DROP TABLE logits; --\x1b[31m %s%n \u202e"
bad = {
    "value-text": chat_with(logprob="-0.5"), "value-true": chat_with(logprob=True),
    "value-list": chat_with(logprob=[1]), "value-huge": None, "token-number": chat_with(token=5),
    "token-none": chat_with(token=None, bytes=None), "byte-large": chat_with(bytes=[300]),
    "byte-fraction": chat_with(bytes=[1.5]), "bytes-text": chat_with(bytes="ab"),
    "id-text": chat_with(id="x"), "id-huge": chat_with(id=2**40), "id-negative": chat_with(id=-2),
    "id-fraction": chat_with(id=1.5), "entry-number": sglang_with(5), "entry-text": sglang_with("x"),
    "older-list": {"request": {"prompt": "q"}, "response": legacy(arms["a"][1])},
    "older-value": {"request": {"prompt": "q"}, "response": legacy(arms["a"][1])},
    "sglang-value": sglang_with(["x", 3, "c"]), "content-text": content("abc"),
    "content-number": content([5]), "content-nested": content([[["x"]]]), "choice-number": {"choices": [5]},
    "choices-object": {"choices": {"a": "b"}}, "choice-index": {"request": {"prompt": "q"}, "response": {
        "choices": [{"index": 10**9, "logprobs": legacy(arms["a"][1])["choices"][0]["logprobs"]}]}},
    "prompt-id": dict(llama(arms["a"][1]), prompt_token_ids=[1, 2**40]),
    "prompts": {"request": {"prompt": ["p", "q"]}, "response": legacy(arms["a"][1])},
    "no-prompt": legacy(arms["a"][1]), "array": [1, 2], "number": 5,
    "hostile": chat_with(logprob=hostile), "nan": None, "nothing": None, "deep": None, "nul": None,
}
older = bad["older-list"]["response"]["choices"][0]["logprobs"]
older["top_logprobs"][3] = [1]
older = bad["older-value"]["response"]["choices"][0]["logprobs"]
older["token_logprobs"][3] = "-1"
older["top_logprobs"][4]["a"] = {}
text = {
    "value-huge": json.dumps(chat_with(logprob=12345.5)).replace("12345.5", "-1e400"),
    "nan": json.dumps(chat_with(logprob=float("nan"))), "nothing": "hello " + hostile,
    "deep": "[" * 100000, "nul": json.dumps(good) + "\0",
}
os.mkdir("bad")
for name, line in bad.items():
    with open("bad/%s.jsonl" % name, "w") as f:
        first = {"request": {"prompt": "p"}, "response": sglang(arms["a"][0])}
        f.write(json.dumps(first if "sglang" in name or "entry" in name else good) + "\n" + (text.get(name) or json.dumps(line)) + "\n")

os.mkdir("cut")
whole = open("chat-a.jsonl", "rb").read()[:40000]
ends = [i for i, c in enumerate(whole) if c == 10]
for n in range(1, len(whole), 397):
    if n - 1 not in ends and n not in ends:
        open("cut/%d.jsonl" % n, "wb").write(whole[:n])
EOT
python3 write.py || exit 99

figures() { # FILE: comparable positions and flips; the margins of each arm
    sqlite3 "$1" "SELECT count(*), sum(flip) FROM pairs WHERE arm_id_a = 1 AND arm_id_b = 2;
        SELECT printf('%.2f', sum(margin)) FROM logits GROUP BY arm_id ORDER BY arm_id"
}
for form in chat batch ids legacy sglang llama older; do
    ok "$form: two files become a record" "$neartie" import logprobs -o $form.db $form-a.jsonl $form-b.jsonl
    is "$form: positions, flips and margins are what they are" "$(figures $form.db)" "$(cat want.txt)"
done
is "the strongest way of joining is taken" "$(for form in chat batch ids legacy sglang llama older; do
    sqlite3 $form.db "SELECT value FROM settings WHERE name = 'import_join'"; done | tr '\n' ' ')" \
    "prompt id tokens prompt tokens tokens prompt "
run "$neartie" import logprobs -o bare.db bare-a.jsonl bare-b.jsonl
is "without anything to join by: one line that says so" "$status $(wc -l <err) $(grep -c -e --join=order err)" "1 1 1"
for form in bare stream; do
    ok "$form: joined by their order" "$neartie" import logprobs --join=order -o $form.db $form-a.jsonl $form-b.jsonl
    is "$form: positions, flips and margins are what they are" "$(figures $form.db)" "$(cat want.txt)"
done
is "a stream's pieces are one sequence" "$(sqlite3 stream.db 'SELECT count(*) FROM sequences')" 24
ok "the same responses again" "$neartie" import logprobs -o same.db chat-a.jsonl chat-a.jsonl
is "differ by nothing" \
    "$(sqlite3 same.db 'SELECT count(*), sum(contrast <> 0), sum(delta <> 0), sum(max_delta <> 0) FROM pairs')" "360|0|0|0"
run "$neartie" verdict chat.db --class=precision
is "noise is no defect" "$status" 0
is "ids that are stated are recorded" \
    "$(sqlite3 llama.db "SELECT group_concat(DISTINCT input_token) FROM logits WHERE pos = 2")" 7
is "and their texts" "$(sqlite3 llama.db "SELECT hex(text) FROM vocab WHERE token = 27")" E282AC
is "texts without ids are numbered, their bytes kept" \
    "$(sqlite3 chat.db "SELECT count(*), sum(hex(text) = 'E282AC') FROM vocab")" "40|1"
is "emitted tokens are recorded" \
    "$(sqlite3 chat.db 'SELECT count(*) FROM logits WHERE emitted_token = top1')" 720
is "what is unknown is NULL, and said" \
    "$(sqlite3 chat.db "SELECT n_vocab IS NULL, (SELECT count(*) FROM gaps WHERE kind = 'import') FROM runs")" "1|1"
ok "ids in one import" "$neartie" import logprobs -o one.db llama-a.jsonl --class precision
ok "the same ids in another form, in another" "$neartie" import logprobs -o two.db sglang-b.jsonl --class precision
run "$neartie" verdict one.db two.db --a=a --b=a
is "records of stated ids join" "$(grep -c "$(cut -d'|' -f1 want.txt | head -1) positions of 12 sequences" out)" 1
ok "texts in one import" "$neartie" import logprobs -o one-text.db chat-a.jsonl
ok "texts in another" "$neartie" import logprobs -o two-text.db chat-b.jsonl
run "$neartie" verdict one-text.db two-text.db --a=a --b=a
is "ids that are local to an import join no other" "$status" 4
ok "a third file is a third arm" "$neartie" import logprobs -o three.db chat-a.jsonl chat-b.jsonl chat-a.jsonl
is "with its name" "$(sqlite3 three.db "SELECT group_concat(label, '') FROM arms")" abc

for n in 9 10; do
    sed "s/\"model\": \"tiny\"/&, \"usage\": {\"prompt_tokens\": $n}/" chat-b.jsonl >counted-$n.jsonl
done
ok "prompts that are counted" "$neartie" import logprobs -o counted.db counted-9.jsonl counted-9.jsonl
is "give positions" "$(sqlite3 counted.db 'SELECT min(pos), max(pos) FROM logits')" "8|37"
run "$neartie" verdict counted.db
is "and join" "$(grep -c ': 360 positions' out)" 1
ok "the same messages, another number of tokens" "$neartie" import logprobs -o counted2.db counted-9.jsonl counted-10.jsonl
run "$neartie" verdict counted2.db
is "are not compared" "$status" 4
ok "where one does not count" "$neartie" import logprobs -o counted3.db chat-a.jsonl counted-10.jsonl
is "messages join" "$(figures counted3.db)" "$(cat want.txt)"

# What a list does not say.
cat >odd.jsonl <<'EOT'
{"custom_id":"1","response":{"body":{"choices":[{"logprobs":{"content":[{"token":"x","logprob":-7.5,"top_logprobs":[{"token":"x","logprob":-7.5},{"token":"a","logprob":-0.5}]},{"token":"y","logprob":-3,"top_logprobs":[{"token":"a","logprob":-0.25},{"token":"b","logprob":-2},{"token":"y","logprob":-3}]}]}}]}}}
{"custom_id":"2","response":{"body":{"choices":[{"logprobs":{"content":[{"token":"a","logprob":null,"top_logprobs":[{"token":"a","logprob":null},{"token":"b","logprob":null}]}]}}]}}}
{"custom_id":"3","response":{"body":{"choices":[{"logprobs":{"content":[{"token":"a","logprob":-0.5,"top_logprobs":[{"token":"a","logprob":-0.5},{"token":"b","logprob":null},{"token":"c","logprob":-1},{"token":"a","logprob":-4},{"token":"d","logprob":-9999.0}]}]}}]}}}
{"custom_id":"4","response":null,"error":{"message":"no"}}
{"custom_id":"5","response":{"body":{"choices":[{"logprobs":{"content":[{"token":"a","logprob":-0.6931472,"top_logprobs":[{"token":"b","logprob":-0.6931472},{"token":"a","logprob":-0.6931472}]}]}}]}}}
EOT
ok "lists of several kinds" "$neartie" import logprobs -o odd.db odd.jsonl
is "a chosen token of any rank bounds nothing; NaN is counted; a tie is kept" \
    "$(sqlite3 odd.db "SELECT label, pos, json_array_length(topk), n_nan, round(margin, 3)
                       FROM logits JOIN sequences USING(seq_id) ORDER BY row_id")" \
    "1|1|2|0|1.75
2|0|0|2|
3|0|2|0|0.5
5|0|2|0|0.0"
is "what was left out is counted" \
    "$(sqlite3 odd.db "SELECT kind, count FROM gaps WHERE kind GLOB 'import_*' AND kind <> 'import_local_ids' ORDER BY 1")" \
    "import_failed|1
import_null|1
import_same_token|1
import_short|1"
run "$neartie" verdict odd.db odd.db --a=a --b=a
is "no number at all is a defect" "$status" 3
sed 's/"logprob": -/"logprob": 3/g' batch-a.jsonl >scores.jsonl
ok "scores above 0" "$neartie" import logprobs -o scores.db scores.jsonl
is "are logits" "$(sqlite3 scores.db "SELECT value, (SELECT count(lse) FROM logits) FROM settings
                                      WHERE name = 'import_values'")" "logits|0"

failed=''
for bad in bad/*.jsonl; do
    run "$neartie" import logprobs -o bad.db "$bad"
    [ "$status $(wc -l <err) $(grep -c "$bad: line 2: " err) $(ls bad.db* 2>/dev/null)" = "1 1 1 " ] &&
        ! LC_ALL=C grep -q '[[:cntrl:]]' err || failed="$failed $bad"
done
is "what is wrong ends with one line that names file and line" "$failed" ""
is "there were many" "$(find bad -name '*.jsonl' | wc -l)" 34
run "$neartie" import logprobs -o bad.db bad/value-text.jsonl
is "and with the value" "$(grep -c 'value "-0.5" is no number' err)" 1
failed=0
for cut in cut/*.jsonl; do
    run "$neartie" import logprobs -o bad.db "$cut" chat-b.jsonl
    [ "$status $(wc -l <err) $(grep -c "$cut: line" err) $(ls bad.db* 2>/dev/null)" = "1 1 1 " ] || failed=$((failed + 1))
done
is "no cut line is taken for a whole one" "$failed" 0
is "many places were cut" "$([ "$(find cut -name '*.jsonl' | wc -l)" -gt 90 ]; echo $?)" 0
cp chat.db before.db
run "$neartie" import logprobs -o chat.db chat-a.jsonl bad/value-text.jsonl
ok "a file that exists stays as it is after an error" cmp chat.db before.db
echo '{"prompt":"p","completion_probabilities":[{"content":"a","probs":[{"tok_str":"a","prob":1},{"tok_str":"b","prob":0}]}]}' >cold.jsonl
run "$neartie" import logprobs -o bad.db cold.jsonl
is "probabilities of temperature 0 say nothing" \
    "$status $(wc -l <err) $(grep -c 'temperature 0' err) $(ls bad.db* 2>/dev/null)" "1 1 1 "
: >empty.jsonl
for bad in empty missing; do
    run "$neartie" import logprobs -o bad.db $bad.jsonl
    is "$bad.jsonl: one line, no file" "$status $(wc -l <err) $(grep -c $bad.jsonl err) $(ls bad.db* 2>/dev/null)" "1 1 1 "
done
ok "ids with texts stand beside texts alone" "$neartie" import logprobs -o beside.db llama-a.jsonl chat-b.jsonl --join=order
is "compared by their texts" "$(figures beside.db)" "$(cat want.txt)"
run "$neartie" import logprobs -o bad2.db sglang-a.jsonl chat-b.jsonl --join=order
is "ids alone cannot be compared with texts alone" "$status $(grep -c 'alone' err) $(ls bad2.db* 2>/dev/null)" "1 1 "
run "$neartie" import logprobs -o bad2.db chat-a.jsonl --join=tokens
is "a way that the file does not allow" "$status $(grep -c -e '--join=tokens' err)" "1 1"
run "$neartie" import logprobs -o bad2.db chat-a.jsonl --join=nonsense
is "a way that there is not" "$status $(grep -c -e '--join=nonsense' err)" "1 1"
run "$neartie" import logprobs -o bad2.db --tokens x.npy chat-a.jsonl
is "an option of another kind is wrong usage" "$status" 2

# What the probe recorded, written as a server would answer it, joins that record.
if [ "$SANITIZE" != no ]; then
    skip "a recorded run as responses" "a sanitizer's library must come first in LD_PRELOAD"
elif "$engine" info "$data/tiny-qwen3-q8_0.gguf" | grep -q 'hooks.*not compiled in'; then
    skip "a recorded run as responses" "the engine is built with --disable-hooks"
else
    run "$neartie" record -o engine.db -- "$engine" generate "$data/tiny-qwen3-q8_0.gguf" --no-ends \
        --token-ids=69,845,335,305,338,12 -n 40 --ignore-end
    python3 - >response.jsonl <<'EOT'
import json, sqlite3
rows = list(sqlite3.connect("engine.db").execute(
    "SELECT emitted_token, topk, lse FROM logits WHERE emitted_token IS NOT NULL ORDER BY pos"))
lists = [[[v - lse, i, None] for i, v in json.loads(topk)] for _, topk, lse in rows]
print(json.dumps({"request": {"input_ids": [69, 845, 335, 305, 338, 12]}, "response": {"meta_info": {
    "output_token_logprobs": [next(e for e in l if e[1] == t) for (t, _, _), l in zip(rows, lists)],
    "output_top_logprobs": lists}}}))
EOT
    ok "a recorded run as responses" "$neartie" import logprobs -o answered.db response.jsonl
    is "has the same contexts and tokens" "$(sqlite3 answered.db "ATTACH 'engine.db' AS e; SELECT count(*)
        FROM logits AS a JOIN e.logits AS b USING(context_hash, pos, input_token, emitted_token, top1, top2)
        WHERE abs(a.margin - b.margin) < 1e-5")" 40
    run "$neartie" verdict engine.db answered.db --a=decode --b=a --class=engine
    is "and no difference" "$status $(grep -c ': 39 positions of 1 sequence' out)" "0 1"
fi
done_testing
