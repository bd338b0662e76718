"""Token ids and padding for every attention call, taken from the arguments of the modules around it.

A module that is called with token ids or with a padding mask describes the inputs of all attention inside it, unless
the sizes contradict. With a key/value cache, the ids of earlier calls come before those of this one.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.attention.layer import MultiHeadAttention
from regard.heads.calls.basis import FROM_CALL, FROM_MASK, Basis, Fact, How, assumed, unknown
from regard.heads.calls.call import Args, Kwargs, TextIds, WatchedCall
from regard.heads.calls.edits import Positions
from regard.heads.calls.same_keys import fingerprint_of
from regard.heads.inputs.cached_texts import CachedTexts, total_length, without_unused_slots
from regard.heads.inputs.module_call import (
    CROSS_ATTENTION,
    NO_SOURCE,
    CallInputs,
    Given,
    KeySource,
    ModuleCall,
    is_self_attention,
    named_cross_attention,
    positional_names,
)
from regard.heads.inputs.padded_queries import hides_keys, in_blocks, last_queries, real_queries
from regard.heads.inputs.positions import has_length, positions_of, whole_text
from regard.heads.inputs.row_origin import RowOrigins
from regard.heads.inputs.row_relation import UNRELATED, Related, Relation
from regard.heads.inputs.text_arguments import (
    EncoderTexts,
    after_dropped_keys,
    holds_integers,
    read_inputs,
    token_ids,
    with_text,
)
from regard.heads.inputs.user_texts import Given as GivenTexts
from regard.heads.inputs.user_texts import UserTexts, for_batch
from regard.support.vocabulary import ENCODER_STATES, IDS, KEY_PADDING, KEY_PADDING_OF_MODEL, KEY_SOURCES

INPUT_NAMES = {*IDS, "attention_mask", "inputs_embeds", *KEY_PADDING_OF_MODEL}
TELLING = {*INPUT_NAMES, KEY_PADDING, ENCODER_STATES}  # arguments that say something of inputs
_BY_LENGTH = assumed("the padding mask is that of this text, as its length is")
ID_DEPTH = 3  # how deep in the model unnamed ids are looked for: inspecting every tensor would take too long


class InputTracker:
    """The module calls in progress, innermost last, and the ids that each module has read so far."""

    def __init__(self, tokens: GivenTexts, padding: GivenTexts) -> None:
        self.tokens, self.padding = UserTexts(tokens, "tokens"), UserTexts(padding, "padding")
        self.arguments: list[Tensor] = []  # the integers that the model was called with, where tokens are given
        self.calls: list[ModuleCall] = []
        self._told = 0  # how many of them were given inputs
        self.cached_texts = CachedTexts()
        self.encoder_texts = EncoderTexts()
        self.leading_sizes: tuple[int, ...] = ()  # the first two sizes of the model's first tensor argument
        self.unmatched: set[tuple[int, int, int]] = set()  # (B, T, S) of the calls while some were unused
        self.modules: set[str] = set()  # their modules
        self.origins: RowOrigins | None = None  # of this forward, where lengths may be mistaken

    def enter(self, module: nn.Module, args: Args, kwargs: Kwargs, name: str = "") -> None:
        if not self.calls:
            values = (*args, *kwargs.values())
            first = next((v for v in values if isinstance(v, Tensor)), None)
            self.leading_sizes = tuple(first.shape[:2]) if first is not None and not first.is_nested else ()
            self.arguments = [v for v in values if holds_integers(v)] if self.tokens else []
        may_tell = not TELLING.isdisjoint(kwargs) or (args and not self._told and len(self.calls) < ID_DEPTH)
        is_asked = not self.calls or may_tell or isinstance(module, nn.TransformerDecoder)
        is_asked = is_asked and not isinstance(module, nn.Transformer)  # its encoder and its decoder get their own text
        inputs = self._inputs_of(module, args, kwargs) if is_asked else None
        self._told += inputs is not None
        self.calls.append(ModuleCall(module, args, kwargs, inputs, self.calls[-1] if self.calls else None, name))

    def leave(self, output: Any = None) -> None:
        """The innermost module call is over, and returned this."""
        call = self.calls.pop()
        self._told -= call.inputs is not None
        if call.inputs is not None and call.inputs.ids is not None:
            self.encoder_texts.remember(output, TextIds(call.inputs.ids, call.inputs.real))
            if call.inputs.layer is not None and call.inputs.read is not None:
                self.cached_texts.remember(call.inputs.layer, call.inputs.read)

    def batch_size(self, T: int) -> int | None:
        """How many texts of T queries there are, by the ids, the padding mask or the model's first argument."""
        inputs = self._innermost_inputs()
        known = inputs.ids if inputs.ids is not None else inputs.real
        if known is not None:
            return int(known.shape[0])
        if len(self.leading_sizes) == 2 and self.leading_sizes[0] == T != self.leading_sizes[1]:
            return self.leading_sizes[1]  # (T, B, E)
        return self.leading_sizes[0] if self.leading_sizes else None

    def annotate(self, call: WatchedCall, module: str) -> WatchedCall:
        """The call with its module, token ids and padding, as far as they are known."""
        inputs = self._innermost_inputs()
        related = self._related(call, inputs, module)
        call, ids, token_fact = self._with_own_ids(call, inputs, module, related)
        if call.origin.across:
            call = self._with_both_texts(call, inputs, related)
        elif self.tokens and inputs.source_length != call.sizes[3]:
            of_other = self._of_image or related.to_text is Relation.OTHER
            call, token_fact = self.tokens.bound_to(call, token_fact, self.arguments, of_other, self._may_be_several)
        positions = self._positions_of(call, inputs, token_fact, related)
        if positions.how is How.UNKNOWN and call.origin.tokens is not None:
            call, token_fact = call.with_origin(tokens=None), unknown("where queries stand among keys is not known")
        padding = call.origin.basis.padding
        if call.origin.real is None:
            call, padding = self._with_padding(call, inputs, related)
        if related.keys is Relation.SAME and self.origins is not None:
            self.origins.learn_padding(call.origin.real)
        if self.tokens.unused or self.padding.unused:
            B, _, T, S = call.sizes
            self.unmatched.add((B, T, S))
            self.modules.add(module)
        if ids is not None and call.origin.tokens is ids:
            call = with_text(call, inputs, module)
        basis = Basis(call.origin.basis.weights, call.origin.basis.heads, positions, padding, token_fact)
        return call.with_origin(basis=basis) if basis != call.origin.basis else call

    def _related(self, call: WatchedCall, inputs: CallInputs, module: str) -> Related:
        """How the rows of the attention that runs belong together, and to this text."""
        if self.origins is None:
            return UNRELATED
        queries, keys = self.origins.asked
        to_text = None if inputs.rows is None else self.origins.relation(queries, inputs.rows)
        related = Related(self.origins.relation(queries, keys), to_text)
        self.origins.is_needed |= self._may_be_mistaken(call, inputs, module, related)
        return related

    def _may_be_mistaken(self, call: WatchedCall, inputs: CallInputs, module: str, related: Related) -> bool:
        """Would lengths and names say something else of this call, or of one like it, than where its rows come from?"""
        is_cached = self.given.cached and call.sizes[3] > call.sizes[2]
        is_plain = related.keys is Relation.SAME or is_cached
        is_plain = is_plain and related.to_text in (None, Relation.SAME) and inputs.source_length is None
        has_source = any(source.name or source.twin for source in self._sources())
        return not is_plain or has_source or named_cross_attention(module) is not None

    def _may_be_several(self, count: int) -> bool:
        """May more than one argument of the model be so many tokens?"""
        roots = () if self.origins is None else self.origins.roots
        return sum(root.dim() > 3 or has_length(root, count) for root in roots) > 1

    def _with_own_ids(
        self, call: WatchedCall, inputs: CallInputs, module: str, related: Related = UNRELATED
    ) -> tuple[WatchedCall, Tensor | None, Fact]:
        """The call with its module, and with the ids that the model was called with, where they are of its keys."""
        B, _, T, S = call.sizes
        used, may_be_own = call, inputs.ids is not None and inputs.length == T
        is_own = may_be_own and (related.to_text is Relation.SAME or not (related.is_other_text or self._of_image))
        if is_own:
            used = self._look_up(inputs, call, module) if inputs.layer is None else call
            used = without_unused_slots(used, inputs.past_length(B) + T)
        across = self._is_cross_attention(module, inputs, T, S, inputs.past_length(B), related)
        ids, fact = None, call.origin.basis.tokens
        if is_own and not across:
            call, ids = used, token_ids(inputs, used, self.given)
            call = call if ids is not None else after_dropped_keys(call, inputs)
        if ids is not None:
            is_proven = related.to_text is not Relation.UNKNOWN
            is_proven = is_proven and (related.keys is not Relation.UNKNOWN or inputs.is_cached)
            fact = FROM_CALL if is_proven else assumed("the ids are those of this text, as their length is")
        return call.with_origin(module=module, tokens=ids, across=across), ids, fact

    def _positions_of(self, call: WatchedCall, inputs: CallInputs, token_fact: Fact, related: Related) -> Fact:
        own, outer = self._sources() if related.keys is not Relation.SAME else (NO_SOURCE, NO_SOURCE)
        _, _, T, S = call.sizes
        if call.origin.across:
            is_proven = T != S or related.keys is Relation.OTHER or self._is_defined_as_cross_attention
            return FROM_CALL if is_proven else assumed("keys are of another text, as an argument or a module is named")
        if self.origins is not None and S > T and self.origins.adds_a_text:
            own = KeySource("followed")
        is_cached = inputs.is_cached and (not self.given.keys or S in self.given.keys)
        is_known = is_cached or (call.origin.tokens is not None and token_fact == FROM_CALL)
        is_known = is_known and not (own.twin and inputs.is_ambiguous)
        return positions_of(call, self.given, is_known, own, outer, related.keys)

    @property
    def _is_defined_as_cross_attention(self) -> bool:
        """Is the attention that runs cross-attention by what its layer, of torch or of regard, is documented to be?"""
        layers = [call.module for call in self.calls[-2:]]
        return isinstance(layers[-1], MultiHeadAttention) or isinstance(layers[0], nn.TransformerDecoderLayer)

    @property
    def given(self) -> Given:
        """What the innermost module that was called with tensors was given."""
        return self.calls[-1].given if self.calls else Given()

    @property
    def _of_image(self) -> bool:
        """Does a module run that was called with an image, and inside it none that was called with a text?"""
        for call in reversed(self.calls[:-1]):
            if call.of_image or call.inputs is not None:
                return call.of_image
        return False

    def is_whole(self, call: WatchedCall) -> bool:
        """Are the queries of this call all tokens that its module was given?"""
        return call.origin.across or call.origin.tokens is not None or whole_text(call, self.given)

    def may_be_tokens(self, count: int) -> bool:
        """Was a module that runs called with so many tokens, so that as many keys may be tokens?"""
        return any(has_length(value, count) for call in self.calls for value in call.arguments)

    def _with_padding(
        self, call: WatchedCall, inputs: CallInputs, related: Related = UNRELATED
    ) -> tuple[WatchedCall, Fact]:
        """The call with its padded queries, and how they are known."""
        if self.padding and self.padding.part(call.origin.module) is not None:
            real = self.padding.real(call, self._of_image or related.is_other_text)
            if real is not None or self.padding.by_name:
                is_proven = real is None or self.padding.by_name or not self._may_be_several(real.shape[1])
                return call.with_origin(real=real), FROM_CALL if is_proven else _BY_LENGTH
        real, fact = self._padding_of_text(call, inputs, related)
        if real is None and call.origin.across and self.origins is not None:
            real = self.origins.known_padding(call.sizes)
        return (call, fact) if real is None else (call.with_origin(real=real), fact)

    def _padding_of_text(self, call: WatchedCall, inputs: CallInputs, related: Related) -> tuple[Tensor | None, Fact]:
        """From the padding mask of the text that its module reads, or from the mask of the call."""
        given = None if related.is_other_text else inputs.real
        real, is_proven = self._fitted(given, call, inputs, related) if given is not None else (None, True)
        if real is not None and (is_proven or bool(real.all())):
            return real, FROM_CALL
        shown = self._real_by_mask(inputs, call, related)
        if real is not None and (shown is None or not torch.equal(real, shown)):
            return real, _BY_LENGTH
        if shown is not None:
            return shown, FROM_MASK if given is None else FROM_CALL
        if given is None or self.is_whole(call) or bool(given.all()):
            return None, FROM_CALL
        if (real := in_blocks(given, call)) is None:
            return None, unknown("the padding mask is of the text, not of these queries")
        return real, assumed(f"the text is in blocks of {call.sizes[2]} tokens, in their order")

    def _fitted(
        self, given: Tensor, call: WatchedCall, inputs: CallInputs, related: Related
    ) -> tuple[Tensor | None, bool]:
        """The padding mask of a text for the queries of a call, if it fits them, and whether they are of this text."""
        real = last_queries(given, inputs.length, call, inputs.total)
        if related.to_text is not Relation.UNKNOWN or real is not None:
            return real, related.to_text is not Relation.UNKNOWN
        if self.origins is not None and inputs.rows is not None:
            real = self.origins.joined_padding(inputs.rows, given, call.sizes)
        return real, real is not None

    def _look_up(self, inputs: CallInputs, call: WatchedCall, module: str) -> WatchedCall:
        """Find what earlier calls read, if the keys are cached: all of them, or those of a static cache so far."""
        _, _, T, S = call.sizes
        for length in (S, *(past + T for past in self.cached_texts.lengths(module))) if S > T else ():
            used = without_unused_slots(call, length)
            if used.sizes[3] == length and (marks := fingerprint_of(used)) is not None:
                inputs.past = self.cached_texts.before(module, marks, T, inputs.total)
                if inputs.past is not None:
                    return used.with_origin(fingerprint=marks)
        return call

    def positions(self, call: WatchedCall) -> Positions:
        """Where the first query and the first key of an annotated call are in their texts."""
        inputs = self._innermost_inputs()
        B, _, T, S = call.sizes
        past = inputs.past_length(B) if inputs.is_cached else 0
        if call.origin.across:
            return Positions(past, 0)
        first_key = max(0, past + T - (S - call.origin.extra))  # above 0 where a cache keeps the last keys only
        return Positions(call.shift + first_key, first_key)

    def _with_both_texts(self, call: WatchedCall, inputs: CallInputs, related: Related) -> WatchedCall:
        """Cross-attention with the texts of its queries and of its keys, as far as they are known."""
        B, _, T, S = call.sizes
        queries = None
        is_own = inputs.length == T and related.to_text in (None, Relation.SAME)
        if inputs.ids is not None and is_own and not inputs.is_ambiguous:
            queries = for_batch(inputs.ids, B)
        source = next((call.source for call in reversed(self.calls) if call.source.name), NO_SOURCE)
        keys = self.encoder_texts.of(source.states)
        keys = keys if keys is not None and keys.ids.shape == (B, S) else None
        return call.with_origin(query_text=None if queries is None else TextIds(queries), key_text=keys)

    def check_used(self) -> None:
        """Raise ValueError where the tokens or the padding given by the user fit no call."""
        for given in (self.padding, self.tokens):
            given.check_used(self.unmatched, self.modules)

    def _innermost_inputs(self) -> CallInputs:
        return (self.calls[-1].known if self.calls else None) or CallInputs()

    def _inputs_of(self, module: nn.Module, args: Args, kwargs: Kwargs) -> CallInputs | None:
        """What the arguments of a module say about its inputs, and what is known from the call around it."""
        outer = self._innermost_inputs()
        arguments = self._input_arguments(module, args, kwargs)
        may_receive_ids = args and module._modules and len(self.calls) < ID_DEPTH and not self._told
        is_read = arguments or not self.calls or may_receive_ids
        inputs = read_inputs(arguments, args) if is_read else None
        source_length = self._source_length(args, kwargs)
        if inputs is None:
            starts_decoder = bool(source_length) and outer.source_length is None
            if not starts_decoder and not isinstance(module, nn.TransformerDecoder):
                return None
            inputs = CallInputs()  # a decoder does not read the text of its encoder; its own is unknown
        self._find_rows(inputs, arguments, args, kwargs)
        embedded = arguments.get("inputs_embeds")
        if embedded is None or (outer.ids is not None and embedded.shape[:2] == outer.ids.shape):
            inputs.inherit_ids(outer, self.origins)
        if source_length is None:
            inputs.inherit_padding(outer)
        inputs.source_length = source_length
        inputs.total = total_length(kwargs, inputs.length, inputs.real)
        if inputs.ids is outer.ids and outer.total is not None:  # inside the model, a layer may have written already
            inputs.total = outer.total
        return inputs

    def _source_length(self, args: Args, kwargs: Kwargs) -> int | None:
        """How long the text is that a module is given as that of its encoder, unless it is the module's own."""
        states = kwargs.get(ENCODER_STATES)
        if not isinstance(states, Tensor) or states.dim() != 3:
            return None
        others = (*args, *(value for name, value in kwargs.items() if name != ENCODER_STATES))
        own = next((value for value in others if isinstance(value, Tensor) and value.dim() == 3), None)
        is_own = own is states or (own is not None and self.origins is not None and self.origins.are_same(own, states))
        return None if is_own else states.shape[1]

    def _find_rows(self, inputs: CallInputs, arguments: dict[str, Any], args: Args, kwargs: Kwargs) -> None:
        """Remember where the rows of the text come from that a module reads: by its ids, or by its first tensor."""
        if self.origins is None:
            return
        states = (arguments.get("inputs_embeds"), *args, *kwargs.values())
        first = next((t for t in states if isinstance(t, Tensor) and t.dim() > 2 and t.is_floating_point()), None)
        text = inputs.given if inputs.ids is not None else first
        inputs.rows = None if text is None else self.origins.of(text)

    def _input_arguments(self, module: nn.Module, args: Args, kwargs: Kwargs) -> dict[str, Any]:
        """The arguments that may describe the inputs, by name."""
        if self.calls:  # finding the names of positional arguments takes too long for every module
            arguments = {name: value for name, value in kwargs.items() if name in INPUT_NAMES}
        else:
            names = positional_names(module) if args else ()
            arguments = {**dict(zip(names, args, strict=False)), **kwargs}
        if KEY_PADDING in kwargs and is_self_attention(args, kwargs):
            arguments[KEY_PADDING_OF_MODEL[0]] = kwargs[KEY_PADDING]
        return arguments

    def _sources(self) -> tuple[KeySource, KeySource]:
        """Where the innermost module, and the one around it, have their keys from."""
        own = self.calls[-1].source if self.calls else NO_SOURCE
        return own, self.calls[-2].source if len(self.calls) > 1 else NO_SOURCE

    def _is_cross_attention(
        self, module: str, inputs: CallInputs, T: int, S: int, past: int, related: Related = UNRELATED
    ) -> bool:
        """By where queries and keys come from; if nothing tells, by what modules are given, or by their names."""
        if related.keys is Relation.OTHER:
            return True
        if related.keys is Relation.SAME and T == S and not (self.origins and self.origins.reads_one_text_twice):
            return False
        return self._is_called_cross_attention(module, inputs, T, S, past)

    def _is_called_cross_attention(self, module: str, inputs: CallInputs, T: int, S: int, past: int) -> bool:
        """By the length of the encoder's text, by the arguments of the modules, or by the module's name."""
        own_lengths = (inputs.length, past + (inputs.length or 0))
        # Where both texts have the same length, only the name can decide.
        if inputs.source_length == S and (S not in own_lengths or CROSS_ATTENTION.search(module)):
            return True
        own, outer = self._sources()
        named = named_cross_attention(module)
        if own.name:
            return own.length == S and (own.name in KEY_SOURCES or T != S or named is not None)
        if named is not None and named != "multihead_attn":
            return True
        return outer.name == "context" and outer.length == S and S not in (T, past + T)

    def _real_by_mask(self, inputs: CallInputs, call: WatchedCall, related: Related) -> Tensor | None:
        """(B, T), False = padding, from the mask of the call."""
        own, outer = self._sources()
        B, _, T, S = call.sizes
        may_be_other = (own.name and own.length == S) or outer.name == "context" or inputs.source_length == S
        if call.origin.across or not T == S > 0 or (may_be_other and related.keys is not Relation.SAME):
            return None  # the mask is of another text
        real = real_queries(call, lambda columns: any(hides_keys(call.arguments, columns) for call in self.calls))
        return None if real is None else for_batch(real.expand(-1, S), B)
