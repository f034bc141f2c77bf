"""The schemas that a pipeline's topics need, read from their registries when a run is planned."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from tallystick.errors import SchemaChanged, SchemaNotFound
from tallystick.format.registries import PlannedRegistry
from tallystick.format.schemas import FrozenSchema
from tallystick.pipeline import Pipeline
from tallystick.pipeline.registry_options import RegistryOptions, registry_options
from tallystick.pipeline.topics import DeclaredFormat
from tallystick.registry.port import SchemaRegistry
from tallystick.registry.resolved import check_same, resolved

OpenRegistry = Callable[[str], SchemaRegistry]
"""Opens the registry of a connection, by the connection's name."""


class PipelineSchemas:
    """The schemas of a pipeline's formats. Registries are read at most once, and only if they are needed.

    `formats`: (topic, `value` or `key`, format) of those that read a registry. `may_lack`: topics whose subjects need not
    exist.
    """

    def __init__(
        self,
        formats: Sequence[tuple[str, str, DeclaredFormat]],
        open_registry: OpenRegistry,
        *,
        may_lack: Collection[str] = (),
    ) -> None:
        self._formats = formats
        self._open = open_registry
        self._may_lack = may_lack
        self._read: tuple[PlannedRegistry, ...] | None = None
        self._ids: dict[str, Mapping[str, Collection[int]]] = {}
        self._fitting: Pipeline | None = None

    @property
    def needed(self) -> bool:
        """True if a topic of the pipeline has its schemas in a registry."""
        return bool(self._formats)

    def registries(self) -> tuple[PlannedRegistry, ...]:
        """Return the schemas of all subjects that the formats name.

        Raises SchemaNotFound if a registry does not have a subject. Raises RegistryUnavailable, RegistryRefused,
        SchemaIdConflict, SettingsError.
        """
        if self._read is None:
            subjects: dict[str, dict[str, bool]] = {}
            for topic, what, declared in self._formats:
                options = registry_options(declared)
                assert options is not None
                own = subjects.setdefault(options.registry, {})
                for name in subjects_of(options, topic, what):
                    own[name] = own.get(name, True) and topic in self._may_lack
            self._read = tuple(
                PlannedRegistry(name=name, schemas=self._of(name, subjects[name]))
                for name in sorted(subjects)
            )
        return self._read

    def check_same(self, before: Sequence[PlannedRegistry]) -> None:
        """Raise SchemaIdConflict if an id of an earlier plan means another schema now."""
        for registry in self.registries():
            earlier = PlannedRegistry.schemas_of(before, registry.name)
            check_same(earlier.values(), registry.schemas)

    def check_misfits(self, pipeline: Pipeline) -> None:
        """Raise SchemaChanged if a schema does not fit the columns of a format with misfits="stop".

        The same pipeline is checked once.
        """
        if self._fitting is pipeline:
            return
        for topic in pipeline.inputs:
            spec = pipeline.topic_spec(topic.name)
            for what, declared in (("value", spec.decode), ("key", spec.key)):
                options = registry_options(declared)
                if declared is None or options is None or options.misfits != "stop":
                    continue
                # Only here: importing it compiles or loads kernels, which takes half a second.
                from tallystick.engine.decode.misfits import misfit

                for schema in self.own(options, topic.name, what):
                    if (reason := misfit(declared, schema)) is not None:
                        raise SchemaChanged(
                            f"topic {topic.name}: {reason}. Nothing was planned (misfits='stop').",
                            hint="correct the columns of the topic; or misfits='dead' makes dead letters of its "
                            "records.",
                        )
        self._fitting = pipeline

    def lacking(self) -> dict[str, list[str]]:
        """Return the subjects that do not exist, by the topics that may lack them."""
        self.registries()
        found: dict[str, list[str]] = {}
        for topic, what, declared in self._formats:
            options = registry_options(declared)
            assert options is not None
            known = self._ids.get(options.registry, {})
            for name in subjects_of(options, topic, what):
                if name not in known:
                    found.setdefault(topic, []).append(name)
        return found

    def own(self, options: RegistryOptions, topic: str, what: str) -> list[FrozenSchema]:
        """Return the schemas of a topic's subjects, by subject, in the order of their versions."""
        found = PlannedRegistry.schemas_of(self.registries(), options.registry)
        # Not by subject and version in the schema: several subjects can have the same id, which is kept once. Nor by id:
        # a later version can have a lower one, that of the same schema in another subject.
        ids = self._ids.get(options.registry, {})
        own = (i for name in subjects_of(options, topic, what) for i in ids.get(name, ()))
        return [found[i] for i in dict.fromkeys(own)]

    def _of(self, name: str, subjects: dict[str, bool]) -> tuple[FrozenSchema, ...]:
        """Return the schemas of subjects; each is left out if it does not exist and need not."""
        registry = self._open(name)
        existing = [one for one, optional in subjects.items() if not optional]
        optional = [one for one, optional in subjects.items() if optional]
        if optional:
            existing += sorted(set(optional) & set(registry.subjects()))
        try:
            found = resolved(registry, existing)
        except SchemaNotFound as error:
            raise SchemaNotFound(
                error.message,
                hint="register the topic's schema; or, if its records have schemas of other subjects (another subject "
                'name strategy), name them in the topic\'s format: subjects=["..."].',
            ) from error
        self._ids[name] = found.ids
        return tuple(map(_with_compiled, found.schemas))


def subjects_of(options: RegistryOptions, topic: str, what: str) -> tuple[str, ...]:
    """Return the subjects of a format: those that it names, or the topic's own (`what`: `value` or `key`)."""
    return options.subjects or (f"{topic}-{what}",)


def _with_compiled(schema: FrozenSchema) -> FrozenSchema:
    if schema.kind != "PROTOBUF":
        return schema
    from tallystick.engine.decode.protobuf.rows import compiled_schema

    return replace(schema, compiled=compiled_schema(schema))
