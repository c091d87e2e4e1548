"""One speculation round of a small random model in PyTorch, its steps by the C library: what an engine's captured step looks
like. All tensors are allocated once, so a graph of enqueue() replays with whatever the inputs then hold."""

import dataclasses
import random

import torch

PAD_WIDTH = 10  # bytes of a row of the plane that stands for an engine's own data


@dataclasses.dataclass(frozen=True)
class Shape:
    trees: int = 4
    depths: int = 6
    k: int = 8
    budget: int = 33
    vocabulary: int = 512
    hidden: int = 96
    heads: int = 16
    latent: int = 512
    rope: int = 64
    layers: int = 2
    cache: str = "bfloat16"
    page_rows: int = 64
    positions: int = 1200  # most committed positions of a sequence


class Round:
    def __init__(self, kernels, shape, device):
        self.kernels, self.shape, self.device = kernels, shape, device
        s = shape
        self.rows = s.trees * (s.budget + 1)
        self.width = s.latent + s.rope
        self.sequences = s.trees + 3  # the engine knows more sequences than are in this batch
        pages_each = (s.positions + s.budget) // 64 + 2
        self.slots = (self.sequences * pages_each + 1) * 64  # the last page: where padding rows write
        self.pages = pages_each * 64 // s.page_rows
        self._allocate()
        weights = torch.Generator().manual_seed(7)
        normal = lambda *size: torch.randn(*size, generator=weights).to(device)  # noqa: E731
        self.embedding = normal(s.vocabulary, s.hidden)
        self.key_weight = [normal(s.hidden, self.width) / s.hidden**0.5 for _ in range(s.layers)]
        self.query_weight = [normal(s.hidden, s.heads * self.width) / s.hidden**0.5 for _ in range(s.layers)]
        self.out_weight = [normal(s.heads * s.latent, s.hidden) / (s.heads * s.latent) ** 0.5 for _ in range(s.layers)]
        self.scale = 1.5 / self.width**0.5

    def _ints(self, *size):
        return torch.zeros(*size, dtype=torch.int32, device=self.device)

    def _floats(self, *size):
        return torch.zeros(*size, dtype=torch.float32, device=self.device)

    def _bytes(self, count):
        return torch.zeros(max(count, 1), dtype=torch.uint8, device=self.device)

    def _allocate(self):
        s, rows, trees = self.shape, self.rows, self.shape.trees
        # Inputs.
        self.draft_logits = self._floats(trees, s.depths, s.vocabulary)
        self.top_k_params, self.build_params = self._bytes(32 * trees), self._bytes(16 * trees)
        self.sampling_params = self._bytes(32 * trees)
        self.root_position, self.table_row = self._ints(trees), self._ints(trees)
        self.page_table, self.write_slot = self._ints(self.sequences, self.pages), self._ints(rows)
        self.tree_begin = (torch.arange(trees + 1, dtype=torch.int32) * (s.budget + 1)).to(self.device)
        self.boost = self._floats(rows)
        self.row_tree = torch.arange(rows, device=self.device) // (s.budget + 1)
        self.params_index = torch.arange(trees, dtype=torch.int32).repeat_interleave(s.budget + 1).to(self.device)
        self.cache = [torch.zeros(self.slots, self.width, dtype=getattr(torch, s.cache), device=self.device)
                      for _ in range(s.layers)]
        self.extra = torch.zeros(self.slots, PAD_WIDTH, dtype=torch.uint8, device=self.device)
        planes = self.cache + [self.extra]
        self.plane = torch.tensor([plane.data_ptr() for plane in planes], dtype=torch.int64).to(self.device)
        self.row_bytes = torch.tensor([plane.stride(0) * plane.element_size() for plane in planes]).to(self.device)
        # What the steps write.
        self.token, self.log_prob = self._ints(trees, s.depths, s.k), self._floats(trees, s.depths, s.k)
        self.tree_token, self.tree_parent = self._ints(trees, s.budget + 1), self._ints(trees, s.budget + 1)
        self.tree_score, self.nodes, self.build_error = self._floats(trees, s.budget + 1), self._ints(trees), self._ints(trees)
        self.sequence, self.position, self.prefix_blocks = self._ints(rows), self._ints(rows), self._ints(rows)
        self.tail_slot, self.tail_count = self._ints(rows, 127), self._ints(rows)
        self.query = [self._floats(rows, s.heads, self.width) for _ in range(s.layers)]
        self.out = [self._floats(rows, s.heads, s.latent) for _ in range(s.layers)]
        self.logits, self.next_position = self._floats(rows, s.vocabulary), self._ints(rows)
        self.chosen, self.chosen_log_prob, self.sample_error = self._ints(rows), self._floats(rows), self._ints(rows)
        self.path, self.path_length, self.bonus = self._ints(rows), self._ints(trees), self._ints(trees)
        self.accept_error = self._ints(trees)
        self.move_from, self.move_to, self.kept_slot = self._ints(rows), self._ints(rows), self._ints(rows)
        self.before = [torch.zeros_like(plane) for plane in planes]  # the planes just before compaction
        scratch = self.kernels.scratch_bytes
        self.top_k_scratch = self._bytes(scratch("top_k_log_prob", logits_dtype=0, streams=trees, max_depths=s.depths,
                                                 vocabulary=s.vocabulary, logits_stride=s.vocabulary, max_k=s.k))
        self.attention_scratch = self._bytes(scratch("tree_attention_mla", rows=rows, heads=s.heads, latent=s.latent,
                                                     rope=s.rope, cache_dtype=self.cache_dtype(), pages=self.pages,
                                                     page_table_stride=self.pages, page_rows=s.page_rows))
        self.sample_scratch = self._bytes(scratch("sample_target", rows=rows, vocabulary=s.vocabulary,
                                                  logits_stride=s.vocabulary, params_count=trees))

    def cache_dtype(self):
        return 1 if self.shape.cache == "bfloat16" else 0

    def set_inputs(self, content, layout):
        """New inputs. `content` seeds what the sequences are, `layout` where their rows lie in the pool."""
        s = self.shape
        generator, rng = torch.Generator().manual_seed(content), random.Random(content)
        self.draft_logits.copy_(torch.randn(s.trees, s.depths, s.vocabulary, generator=generator) * 6)
        self.boost.copy_(torch.tensor([rng.choice([0.0, 20.0, 40.0]) for _ in range(self.rows)]))
        self.roots = [rng.randrange(s.positions + 1) for _ in range(s.trees)]
        self.roots[0] = rng.choice([0, 1, 62, 63, 64, 126, 127, 128])
        self.depths = [rng.randrange(1, s.depths + 1) for _ in range(s.trees)]
        self.depths[0] = s.depths
        self.budgets = [s.budget] * (s.trees - 1) + [0]  # the last tree is padding
        self.top_k = [dict(temperature=rng.choice([0.0, 0.8]), beta=1.0, seed=rng.getrandbits(64), sample_index=i,
                           first_position=self.roots[i] + 1, depths=self.depths[i], k=s.k) for i in range(s.trees)]
        self.build = [dict(root=rng.randrange(s.vocabulary), depths=self.depths[i], k=s.k, budget=self.budgets[i])
                      for i in range(s.trees)]
        self.sampling = [dict(temperature=rng.choice([0.0, 0.7, 1.3]), top_k=rng.choice([0, 5, 100]),
                              top_p=rng.choice([1.0, 0.9]), min_p=rng.choice([0.0, 0.05]), seed=self.top_k[i]["seed"],
                              sample_index=i) for i in range(s.trees)]
        self._copy_params(self.top_k_params, "top_k_params", self.top_k)
        self._copy_params(self.build_params, "tree_build_params", self.build)
        self._copy_params(self.sampling_params, "sampling_params", self.sampling)
        self.root_position.copy_(torch.tensor(self.roots, dtype=torch.int32))
        self._lay_out(generator, random.Random(layout))

    def _copy_params(self, tensor, name, rows):
        tensor.copy_(torch.frombuffer(bytearray(self.kernels.params(name, rows)), dtype=torch.uint8))

    def _lay_out(self, generator, rng):
        """Committed rows of every sequence into slots; all other slots hold other data."""
        s = self.shape
        if s.page_rows == 1:
            free = list(range(self.slots - 64))
            rng.shuffle(free)
            table = [[free.pop() for _ in range(self.pages)] for _ in range(self.sequences)]
            self.slot_of = table
        else:
            free = list(range(self.slots // 64 - 1))
            rng.shuffle(free)
            table = [[free.pop() for _ in range(self.pages)] for _ in range(self.sequences)]
            self.slot_of = [[page * 64 + i for page in pages for i in range(64)] for pages in table]
        self.rows_of_table = rng.sample(range(self.sequences), s.trees)
        self.table_row.copy_(torch.tensor(self.rows_of_table, dtype=torch.int32))
        self.page_table.copy_(torch.tensor(table, dtype=torch.int32))
        self.write = []
        for tree, root in enumerate(self.roots):
            slots = self.slot_of[self.rows_of_table[tree]]
            self.write += slots[root : root + s.budget + 1] if self.budgets[tree] > 0 else [-1] * (s.budget + 1)
        self.write_slot.copy_(torch.tensor(self.write, dtype=torch.int32))
        for plane in self.cache:
            plane.copy_(torch.randn(self.slots, self.width, generator=torch.Generator().manual_seed(rng.getrandbits(32))))
            for tree, root in enumerate(self.roots):
                committed = torch.randn(root, self.width, generator=generator).to(self.device, plane.dtype)
                plane[torch.tensor(self.slot_of[self.rows_of_table[tree]][:root], dtype=torch.long, device=self.device)] = committed
        self.extra.copy_(torch.randint(0, 256, self.extra.shape, generator=torch.Generator().manual_seed(1), dtype=torch.uint8))

    def enqueue(self, stream):
        s, call, rows = self.shape, self.kernels.call, self.rows
        call("top_k_log_prob", stream, logits=self.draft_logits, logits_dtype=0, streams=s.trees, max_depths=s.depths,
             vocabulary=s.vocabulary, logits_stride=s.vocabulary, params=self.top_k_params, max_k=s.k, token=self.token,
             log_prob=self.log_prob, scratch=self.top_k_scratch, scratch_bytes=self.top_k_scratch.numel())
        call("tree_build", stream, streams=s.trees, max_depths=s.depths, max_k=s.k, max_budget=s.budget,
             params=self.build_params, token=self.token, log_prob=self.log_prob, out_token=self.tree_token,
             out_parent=self.tree_parent, out_score=self.tree_score, out_nodes=self.nodes, error=self.build_error)
        call("tree_rows", stream, trees=s.trees, rows=rows, tree_begin=self.tree_begin, nodes=self.nodes,
             parent=self.tree_parent, root_position=self.root_position, table_row=self.table_row, page_table=self.page_table,
             sequences=self.sequences, pages=self.pages, page_table_stride=self.pages, page_rows=s.page_rows,
             write_slot=self.write_slot, sequence=self.sequence, position=self.position, prefix_blocks=self.prefix_blocks,
             tail_slot=self.tail_slot, tail_count=self.tail_count)
        self._model(stream)
        torch.add(self.position, 1, out=self.next_position)
        call("sample_target", stream, logits=self.logits, rows=rows, vocabulary=s.vocabulary, logits_stride=s.vocabulary,
             position=self.next_position, params_index=self.params_index, params=self.sampling_params, params_count=s.trees,
             chosen=self.chosen, log_prob=self.chosen_log_prob, error=self.sample_error, scratch=self.sample_scratch,
             scratch_bytes=self.sample_scratch.numel())
        call("tree_accept", stream, trees=s.trees, rows=rows, tree_begin=self.tree_begin, nodes=self.nodes,
             token=self.tree_token, parent=self.tree_parent, chosen=self.chosen, path=self.path,
             path_length=self.path_length, bonus=self.bonus, error=self.accept_error)
        for before, plane in zip(self.before, self.cache + [self.extra]):
            before.copy_(plane)
        call("accepted_moves", stream, trees=s.trees, rows=rows, tree_begin=self.tree_begin, path=self.path,
             path_length=self.path_length, write_slot=self.write_slot, to=self.move_to, kept_slot=self.kept_slot,
             **{"from": self.move_from})
        call("kv_compact", stream, plane=self.plane, row_bytes=self.row_bytes, planes=s.layers + 1,
             max_row_bytes=self.width * self.cache[0].element_size(), slots=self.slots, to=self.move_to, moves=rows,
             **{"from": self.move_from})

    def _model(self, stream):
        s = self.shape
        x = self.embedding[self.tree_token.view(-1).clamp(0, s.vocabulary - 1).long()]
        # Rows of no token write where nobody reads.
        slot = torch.where(self.tail_count > 0, self.write_slot, torch.full_like(self.write_slot, self.slots - 1)).long()
        for layer in range(s.layers):
            self.cache[layer].index_copy_(0, slot, (x @ self.key_weight[layer]).to(self.cache[layer].dtype))
            self.query[layer].copy_((x @ self.query_weight[layer]).view(self.rows, s.heads, self.width))
            self.kernels.call(
                "tree_attention_mla", stream, query=self.query[layer], rows=self.rows, heads=s.heads, latent=s.latent,
                rope=s.rope, scale=self.scale, cache=self.cache[layer], cache_dtype=self.cache_dtype(), slots=self.slots,
                page_table=self.page_table, sequences=self.sequences, pages=self.pages, page_table_stride=self.pages,
                page_rows=s.page_rows, sequence=self.sequence, prefix_blocks=self.prefix_blocks, tail_slot=self.tail_slot,
                tail_count=self.tail_count, out=self.out[layer], scratch=self.attention_scratch,
                scratch_bytes=self.attention_scratch.numel())
            x = x + self.out[layer].view(self.rows, -1) @ self.out_weight[layer]
        torch.mm(x, self.embedding.t(), out=self.logits)
        self.logits.mul_(0.25)
        # A target that often wants what the draft proposes: each node makes its own token likelier at its parent.
        parent = self.tree_parent.view(-1)
        child = (self.tail_count > 0) & (parent >= 0)
        at = (self.row_tree * (s.budget + 1) + parent) * s.vocabulary + self.tree_token.view(-1)
        self.logits.view(-1).index_add_(0, torch.where(child, at, 0).long(), torch.where(child, self.boost, 0.0))
