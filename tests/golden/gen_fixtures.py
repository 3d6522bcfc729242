"""Tiny random-weight checkpoints in the Hugging Face layout, with golden outputs computed by Hugging Face
transformers in float32 on the CPU. One folder per model: config.json, model.safetensors (+ index when sharded),
golden.safetensors, golden.json.

Usage: gen_fixtures.py OUT_DIR SEED [NAME ...]
"""
import json, os, sys, traceback
import torch, transformers
from safetensors.torch import save_file

torch.set_grad_enabled(False)
torch.set_num_threads(8)
out_root, seed = sys.argv[1], int(sys.argv[2])
only = set(sys.argv[3:])
other_sizes = seed != 20261121  # any other seed makes models of other widths

ROPE = dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25, mrope_section=[3, 3, 2], mrope_interleaved=True)


def moe_text(**kw):
    d = dict(vocab_size=512, hidden_size=64, num_hidden_layers=8, num_attention_heads=4, num_key_value_heads=2,
             head_dim=64, linear_conv_kernel_dim=4, linear_key_head_dim=16, linear_value_head_dim=24,
             linear_num_key_heads=2, linear_num_value_heads=6, moe_intermediate_size=32,
             shared_expert_intermediate_size=48, num_experts_per_tok=4, num_experts=16, rms_norm_eps=1e-6,
             max_position_embeddings=4096, rope_parameters=dict(ROPE), tie_word_embeddings=False,
             bos_token_id=None, eos_token_id=1, pad_token_id=None, hidden_act="silu", attention_bias=False)
    if other_sizes:
        d.update(hidden_size=80, linear_key_head_dim=32, linear_value_head_dim=16, linear_num_key_heads=4,
                 linear_num_value_heads=8, num_experts=24, num_experts_per_tok=6, moe_intermediate_size=40,
                 shared_expert_intermediate_size=16, vocab_size=640, num_key_value_heads=1)
    d.update(kw)
    return d


def randomize(model, g):
    """Weights large enough that routing, gates and decay are all far from degenerate."""
    for n, p in model.named_parameters():
        if n.endswith("A_log"):
            p.copy_(torch.log(torch.rand(p.shape, generator=g) * 8 + 0.05))
        elif n.endswith("dt_bias"):
            p.copy_(torch.randn(p.shape, generator=g) * 0.7)
        elif p.ndim == 1:
            base = 1.0 if ("linear_attn.norm" in n or "visual" in n and "norm" in n and n.endswith("weight")) else 0.0
            if "lfm" in model.config.model_type or model.config.model_type == "qwen3_moe":
                base = 1.0 if n.endswith("weight") else 0.0
            p.copy_(base + torch.randn(p.shape, generator=g) * 0.15)
        elif "embed" in n or "lm_head" in n:
            p.copy_(torch.randn(p.shape, generator=g) * 0.5)
        else:
            fan_in = p.shape[-1] if p.ndim == 2 or "experts" in n else p[0].numel()
            p.copy_(torch.randn(p.shape, generator=g) * (1.3 / fan_in ** 0.5))
    for n, b in model.named_buffers():
        if n.endswith("expert_bias"):
            b.copy_(torch.randn(b.shape, generator=g) * 0.2)


def routing(model, ids, **kw):
    """Top-k expert ids and weights per MoE layer, read from the router modules while they run."""
    rec, hooks = {}, []
    for n, m in model.named_modules():
        if type(m).__name__.endswith("TopKRouter"):
            hooks.append(m.register_forward_hook(lambda mod, i, o, n=n: rec.__setitem__(n, o)))
    out = model(input_ids=ids, output_hidden_states=True, use_cache=True, **kw)
    for h in hooks:
        h.remove()
    return out, rec


def greedy(model, ids, n, **kw):
    toks = []
    out = model(input_ids=ids, use_cache=True, **kw)
    past = out.past_key_values
    margins = []
    for _ in range(n):
        top = out.logits[0, -1].topk(2)
        margins.append(float(top.values[0] - top.values[1]))
        t = int(top.indices[0])
        toks.append(t)
        out = model(input_ids=torch.tensor([[t]]), past_key_values=past, use_cache=True)
    return toks, margins


def record(name, model, prompts, meta=None, extra=None, image_kw=None, shard=None):
    d = os.path.join(out_root, name)
    os.makedirs(d, exist_ok=True)
    model.save_pretrained(d, **({"max_shard_size": shard} if shard else {}))
    t, j = {}, dict(transformers=transformers.__version__, torch=torch.__version__, dtype="float32", seed=seed, prompts=[])
    for i, p in enumerate(prompts):
        ids = torch.tensor([p])
        out, rec = routing(model, ids)
        t[f"prompt{i}.logits"] = out.logits[0].contiguous()
        for k, h in enumerate(out.hidden_states):
            t[f"prompt{i}.hidden.{k}"] = h[0].contiguous()     # 0 = embeddings, k = after layer k; the last one is after the final norm
        for n, o in rec.items():
            key = n.replace("model.language_model.", "").replace("model.", "")
            o = o if isinstance(o, tuple) else (o,)
            ints = [x for x in o if torch.is_tensor(x) and not x.is_floating_point()]
            if ints:
                t[f"prompt{i}.{key}.topk_ids"] = ints[0].to(torch.int32).contiguous()
                fl = [x for x in o if torch.is_tensor(x) and x.is_floating_point() and x.shape[-1] == ints[0].shape[-1]]
                if fl:
                    t[f"prompt{i}.{key}.topk_weights"] = fl[0].float().contiguous()
        try:
            for li, layer in enumerate(out.past_key_values.layers):
                rs = getattr(layer, "recurrent_states", None)
                if rs is not None:
                    rs = rs[0] if isinstance(rs, (list, tuple, dict)) else rs
                    if torch.is_tensor(rs) and rs.numel():
                        t[f"prompt{i}.recurrent_state.{li}"] = (rs[0] if rs.ndim == 4 else rs).float().contiguous()
        except Exception as e:
            print(name, "recurrent state:", e)
        toks, margins = greedy(model, ids, 24)
        j["prompts"].append(dict(ids=p, greedy=toks, greedy_margin=margins))
    if extra:
        e_t, e_j = extra(model)
        t.update(e_t); j.update(e_j)
    if meta:
        j.update(meta)
    save_file({k: v.clone() for k, v in t.items()}, os.path.join(d, "golden.safetensors"))
    json.dump(j, open(os.path.join(d, "golden.json"), "w"), indent=1)
    print(name, "ok", sum(p.numel() for p in model.parameters()), "params", flush=True)


def prompts(vocab, g, lens=(5, 37, 130)):
    return [torch.randint(8, vocab - 16, (n,), generator=g).tolist() for n in lens]


# ---------------------------------------------------------------- MTP (weights are ignored by transformers)
class MTP(torch.nn.Module):
    """mtp.* of Qwen3.5: norm(embedding of the next token) | norm(hidden) -> fc -> one full-attention decoder layer -> norm."""
    def __init__(self, cfg, mod):
        super().__init__()
        import copy
        c = copy.deepcopy(cfg); c.layer_types = ["full_attention"]; c.num_hidden_layers = 1
        h = cfg.hidden_size
        self.fc = torch.nn.Linear(2 * h, h, bias=False)
        N = mod.Qwen3_5MoeRMSNorm if hasattr(mod, "Qwen3_5MoeRMSNorm") else mod.Qwen3_5RMSNorm
        L = mod.Qwen3_5MoeDecoderLayer if hasattr(mod, "Qwen3_5MoeDecoderLayer") else mod.Qwen3_5DecoderLayer
        self.pre_fc_norm_embedding, self.pre_fc_norm_hidden, self.norm = N(h, 1e-6), N(h, 1e-6), N(h, 1e-6)
        self.layers = torch.nn.ModuleList([L(c, 0)])

    def forward(self, embeds, hidden, pos_emb):
        x = self.fc(torch.cat([self.pre_fc_norm_embedding(embeds), self.pre_fc_norm_hidden(hidden)], -1))
        n = x.shape[1]
        mask = torch.full((n, n), float("-inf")).triu(1)[None, None]
        return self.norm(self.layers[0](x, position_embeddings=pos_emb, attention_mask=mask))


def with_mtp(mod, g):
    def extra(model):
        cfg = model.config.text_config
        cfg._attn_implementation = "eager"
        mtp = MTP(cfg, mod); randomize_mtp(mtp, g)
        sd = {f"mtp.{k}": v.clone() for k, v in mtp.state_dict().items()}
        d = os.path.join(out_root, CUR)
        save_file(sd, os.path.join(d, "mtp.safetensors"))
        lm = model.model.language_model
        t, res = {}, []
        for i, p in enumerate(PROMPTS):
            ids = torch.tensor([p])
            h = lm(input_ids=ids).last_hidden_state            # after the final norm
            first = int(model.lm_head(h)[0, -1].argmax())
            seq = p + [first]; drafts = []; hid = h
            for k in range(3):                                  # pairs (h_t, token_{t+1}) at position t
                emb = lm.embed_tokens(torch.tensor([seq[1:]]))
                pos = torch.arange(len(seq) - 1)[None, None].expand(3, 1, -1)
                o = mtp(emb, hid, lm.rotary_emb(emb, pos))
                lg = model.lm_head(o)[0, -1]
                if k == 0:
                    t[f"prompt{i}.mtp_logits"] = model.lm_head(o)[0].contiguous()
                nt = int(lg.argmax()); drafts.append(nt); seq = seq + [nt]
                hid = torch.cat([hid, o[:, -1:]], 1)            # the draft's own normed output stands in for the next hidden
            res.append(dict(first=first, drafts=drafts))
        return t, dict(mtp=res, mtp_note="pairs (final-normed hidden at t, embedding of token t+1), rotary position t; later drafts feed the MTP's own normed output")
    return extra


def randomize_mtp(m, g):
    for n, p in m.named_parameters():
        if p.ndim == 1: p.copy_(torch.randn(p.shape, generator=g) * 0.15)
        else: p.copy_(torch.randn(p.shape, generator=g) * (1.3 / p.shape[-1] ** 0.5))


CUR, PROMPTS = "", []


def run(name, fn):
    global CUR, PROMPTS
    if only and name not in only:
        return
    CUR = name
    try:
        fn(name)
    except Exception:
        print(name, "FAILED"); traceback.print_exc()


VIS = dict(depth=3, hidden_size=48, intermediate_size=80, num_heads=4, patch_size=16, spatial_merge_size=2,
           temporal_patch_size=2, in_channels=3, num_position_embeddings=36, hidden_act="gelu_pytorch_tanh")


def images():
    """Deterministic RGB test pictures (uint8 HWC)."""
    import numpy as np
    res = []
    for (h, w) in ((97, 150), (64, 64), (200, 121)):
        y, x = np.mgrid[0:h, 0:w]
        r = (x * 255 // max(w - 1, 1)) ^ (y * 3 & 255)
        gch = (y * 255 // max(h - 1, 1))
        b = ((x // 7 + y // 11) % 2) * 200 + ((x * y) % 41)
        res.append(np.stack([r & 255, gch & 255, b & 255], -1).astype("uint8"))
    return res


def vl_extra(model):
    from transformers import Qwen2VLImageProcessor
    from PIL import Image
    d = os.path.join(out_root, CUR)
    t, j = {}, {}
    ip = Qwen2VLImageProcessor(patch_size=16, merge_size=2, temporal_patch_size=2, image_mean=[0.5] * 3, image_std=[0.5] * 3,
                               size={"shortest_edge": 4096, "longest_edge": 65536})
    ip.save_pretrained(d)
    pics = [Image.fromarray(a) for a in images()]
    for i, p in enumerate(pics):
        p.save(os.path.join(d, f"image{i}.png"))
    cases = []
    for i, p in enumerate(pics):
        f = ip(images=[p], return_tensors="pt")
        t[f"image{i}.pixel_values"] = f["pixel_values"].float().contiguous()
        grid = f["image_grid_thw"]
        n = int(grid[0].prod()) // 4
        c = model.config
        ids = [20, 21, 22, c.vision_start_token_id] + [c.image_token_id] * n + [c.vision_end_token_id, 30, 31, 32, 33]
        ids_t = torch.tensor([ids])
        mm = (ids_t == c.image_token_id).int()
        vis = model.model.visual(f["pixel_values"], grid_thw=grid)
        t[f"image{i}.merged"] = (vis.pooler_output if hasattr(vis, "pooler_output") else vis[0]).float().contiguous()
        kw = dict(pixel_values=f["pixel_values"], image_grid_thw=grid, mm_token_type_ids=mm)
        try:
            pos, delta = model.model.get_rope_index(ids_t, mm_token_type_ids=mm, image_grid_thw=grid)
        except TypeError:
            pos, delta = model.model.get_rope_index(ids_t, image_grid_thw=grid); kw.pop("mm_token_type_ids")
        t[f"image{i}.position_ids"] = pos[:, 0].to(torch.int32).contiguous()
        out = model(input_ids=ids_t, use_cache=True, **kw)
        t[f"image{i}.logits"] = out.logits[0].contiguous()
        toks, marg = [], []
        past = out.past_key_values; nxt = len(ids) + int(delta)
        for s in range(16):
            top = out.logits[0, -1].topk(2); tok = int(top.indices[0]); toks.append(tok); marg.append(float(top.values[0] - top.values[1]))
            out = model(input_ids=torch.tensor([[tok]]), past_key_values=past, use_cache=True,
                        position_ids=torch.full((3, 1, 1), nxt + s, dtype=torch.long))
        cases.append(dict(image=f"image{i}.png", grid_thw=grid[0].tolist(), ids=ids, rope_delta=int(delta), greedy=toks, greedy_margin=marg))
    # two images in one prompt
    f = ip(images=pics[:2], return_tensors="pt"); grid = f["image_grid_thw"]; c = model.config
    ids = []
    for k in range(2):
        ids += [20 + k, c.vision_start_token_id] + [c.image_token_id] * (int(grid[k].prod()) // 4) + [c.vision_end_token_id]
    ids += [40, 41, 42]
    ids_t = torch.tensor([ids]); mm = (ids_t == c.image_token_id).int()
    kw = dict(pixel_values=f["pixel_values"], image_grid_thw=grid, mm_token_type_ids=mm)
    try:
        out = model(input_ids=ids_t, **kw)
    except TypeError:
        kw.pop("mm_token_type_ids"); out = model(input_ids=ids_t, **kw)
    t["two_images.logits"] = out.logits[0].contiguous()
    cases.append(dict(images=["image0.png", "image1.png"], ids=ids, grid_thw=grid.tolist()))
    # a video: 4 frames of a moving square, two temporal patches
    try:
        import numpy as np
        frames = []
        for k in range(4):
            a = np.zeros((64, 96, 3), "uint8") + 30; a[10 + 8 * k:26 + 8 * k, 12 * k:12 * k + 24] = [220, 60 + 40 * k, 90]; frames.append(a)
            Image.fromarray(a).save(os.path.join(d, f"frame{k}.png"))
        fr = [ip(images=[Image.fromarray(a)], return_tensors="pt")["pixel_values"] for a in frames]
        g1 = ip(images=[Image.fromarray(frames[0])], return_tensors="pt")["image_grid_thw"][0].tolist()
        # pair consecutive frames into one temporal patch: pixel_values rows are [channel, temporal 2, 16, 16]
        def pair(a, b):
            A = a.view(-1, 3, 2, 256)[:, :, :1]; B = b.view(-1, 3, 2, 256)[:, :, :1]
            return torch.cat([A, B], 2).reshape(a.shape)
        pv = torch.cat([pair(fr[0], fr[1]), pair(fr[2], fr[3])]); grid = torch.tensor([[2, g1[1], g1[2]]])
        vis = model.model.visual(pv, grid_thw=grid)
        t["video.pixel_values"] = pv.contiguous(); t["video.merged"] = (vis.pooler_output if hasattr(vis, "pooler_output") else vis[0]).float().contiguous()
        cases.append(dict(video=[f"frame{k}.png" for k in range(4)], grid_thw=grid[0].tolist()))
    except Exception:
        traceback.print_exc()
    j["vision"] = cases
    return t, j


def qwen3_5_moe(name, **kw):
    global PROMPTS
    from transformers import Qwen3_5MoeConfig, Qwen3_5MoeForConditionalGeneration
    import transformers.models.qwen3_5_moe.modeling_qwen3_5_moe as mod
    g = torch.Generator().manual_seed(seed)
    tc = moe_text(**kw)
    v = tc["vocab_size"]
    cfg = Qwen3_5MoeConfig(text_config=tc, vision_config=dict(VIS, out_hidden_size=tc["hidden_size"]), image_token_id=v - 4, video_token_id=v - 3,
                           vision_start_token_id=v - 6, vision_end_token_id=v - 5, tie_word_embeddings=tc["tie_word_embeddings"])
    cfg._attn_implementation = "eager"
    model = Qwen3_5MoeForConditionalGeneration(cfg).float().eval()
    randomize(model, g)
    PROMPTS = prompts(v, g)
    m = with_mtp(mod, g)
    def both(mm):
        t1, j1 = m(mm); t2, j2 = vl_extra(mm); t1.update(t2); j1.update(j2); return t1, j1
    record(name, model, PROMPTS, extra=both, shard="600KB")
    # the same weights in bfloat16: greedy tokens and logits as a bf16 reference
    mb = model.to(torch.bfloat16)
    t = {}; j = []
    for i, p in enumerate(PROMPTS):
        t[f"prompt{i}.logits_bf16"] = mb(input_ids=torch.tensor([p])).logits[0].float().contiguous()
        toks, marg = greedy(mb, torch.tensor([p]), 24); j.append(dict(greedy=toks, greedy_margin=marg))
    d = os.path.join(out_root, name); save_file(t, os.path.join(d, "golden_bf16.safetensors")); json.dump(j, open(os.path.join(d, "golden_bf16.json"), "w"))


def qwen3_5(name):
    from transformers import Qwen3_5Config, Qwen3_5ForConditionalGeneration
    g = torch.Generator().manual_seed(seed + 1)
    tc = moe_text(intermediate_size=96, tie_word_embeddings=True)
    for k in ("moe_intermediate_size", "shared_expert_intermediate_size", "num_experts", "num_experts_per_tok"): tc.pop(k)
    v = tc["vocab_size"]
    cfg = Qwen3_5Config(text_config=tc, vision_config=dict(VIS, out_hidden_size=tc["hidden_size"]), image_token_id=v - 4, video_token_id=v - 3,
                        vision_start_token_id=v - 6, vision_end_token_id=v - 5, tie_word_embeddings=True)
    cfg._attn_implementation = "eager"
    model = Qwen3_5ForConditionalGeneration(cfg).float().eval(); randomize(model, g)
    record(name, model, prompts(v, g))


def qwen3_next(name):
    from transformers import Qwen3NextConfig, Qwen3NextForCausalLM
    g = torch.Generator().manual_seed(seed + 2)
    tc = moe_text(intermediate_size=96, decoder_sparse_step=1, norm_topk_prob=True, mlp_only_layers=[])
    tc["rope_parameters"] = dict(rope_type="default", rope_theta=10000000.0, partial_rotary_factor=0.25)
    cfg = Qwen3NextConfig(**tc); cfg._attn_implementation = "eager"
    model = Qwen3NextForCausalLM(cfg).float().eval(); randomize(model, g)
    record(name, model, prompts(tc["vocab_size"], g))


def qwen3_moe(name):
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM
    g = torch.Generator().manual_seed(seed + 3)
    cfg = Qwen3MoeConfig(vocab_size=512, hidden_size=64, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2, head_dim=32,
                         intermediate_size=96, moe_intermediate_size=32, num_experts=16, num_experts_per_tok=4, norm_topk_prob=True,
                         decoder_sparse_step=1, mlp_only_layers=[1], rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=None, eos_token_id=1,
                         rope_parameters=dict(rope_type="default", rope_theta=1000000.0))
    cfg._attn_implementation = "eager"
    model = Qwen3MoeForCausalLM(cfg).float().eval(); randomize(model, g)
    record(name, model, prompts(512, g))


def lfm2_moe(name):
    from transformers import Lfm2MoeConfig, Lfm2MoeForCausalLM
    g = torch.Generator().manual_seed(seed + 4)
    cfg = Lfm2MoeConfig(vocab_size=512, hidden_size=64, intermediate_size=96, moe_intermediate_size=32, num_hidden_layers=6, num_attention_heads=4,
                        num_key_value_heads=2, conv_bias=False, conv_L_cache=3, num_dense_layers=2, num_experts=8, num_experts_per_tok=2,
                        use_expert_bias=True, norm_topk_prob=True, routed_scaling_factor=1.0, norm_eps=1e-5, tie_word_embeddings=True,
                        layer_types=["conv", "conv", "full_attention", "conv", "conv", "full_attention"], bos_token_id=None, eos_token_id=1)
    cfg._attn_implementation = "eager"
    model = Lfm2MoeForCausalLM(cfg).float().eval(); randomize(model, g)
    record(name, model, prompts(512, g))


def lfm2(name):
    from transformers import Lfm2Config, Lfm2ForCausalLM
    g = torch.Generator().manual_seed(seed + 5)
    cfg = Lfm2Config(vocab_size=512, hidden_size=64, intermediate_size=96, num_hidden_layers=6, num_attention_heads=4, num_key_value_heads=2,
                     conv_bias=False, conv_L_cache=3, norm_eps=1e-5, block_auto_adjust_ff_dim=False, tie_word_embeddings=True,
                     layer_types=["conv", "conv", "full_attention", "conv", "conv", "full_attention"], bos_token_id=None, eos_token_id=1)
    cfg._attn_implementation = "eager"
    model = Lfm2ForCausalLM(cfg).float().eval(); randomize(model, g)
    record(name, model, prompts(512, g))


for name, fn in [("qwen3_5_moe", qwen3_5_moe),
                 ("qwen3_5_moe_wide", lambda n: qwen3_5_moe(n, num_experts=64, num_experts_per_tok=10, num_hidden_layers=4, moe_intermediate_size=16)),
                 ("qwen3_5", qwen3_5), ("qwen3_next", qwen3_next), ("qwen3_moe", qwen3_moe), ("lfm2_moe", lfm2_moe), ("lfm2", lfm2)]:
    run(name, fn)
