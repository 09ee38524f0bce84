/*
 * What a model knows about its row in addition to its fields. Its copies know the same.
 *
 * A version number does not identify a version: another action may have committed one with the same number, on this timeline of the
 * database or on a later one. So a model knows which read has returned it, and whether an attempt has staged its version.
 *
 * A model may hold a value less exactly than its row: without microseconds, or with fewer digits. So a repository may remember with the
 * read how the row is stored. Whatever a copy does not change can then be written as it was.
 */

/** The read that has returned a model. */
export interface ModelRead {
  /** The transaction manager of the model's shard, or of another shard of the same database. */
  readonly manager: object;
  /** The manager's timeline when the read began. */
  readonly timeline: number;
  /** How the row is stored; only the repository knows what that is. */
  readonly form?: unknown;
}

/** Identifies a plan on one shard to the models that are staged on it, which may outlive it. */
export interface PlanIdentity {
  isCommitted: boolean;
}

/** What a model knows about its row in addition to its fields. */
export interface Provenance {
  readonly read?: ModelRead;
  /** The plan on which it was staged, and what was staged there. */
  readonly staged?: { readonly plan: PlanIdentity; readonly entity: object };
}

/** Reads and writes the provenance that an entity keeps; anything else has none. */
interface Access {
  get(model: object): Provenance | undefined;
  set(model: object, provenance: Provenance): void;
}

let access: Access;

/** Called once by the class of entities, which alone can reach what they keep. */
export function giveAccess(toProvenance: Access): void {
  access = toProvenance;
}

/** Records which read has returned a model. */
export function setRead(model: object, read: ModelRead): void {
  access.set(model, { ...access.get(model), read });
}

/** The read that has returned a model, or the one of which it is a copy; `undefined` if that is not known. */
export function readOf(model: object): ModelRead | undefined {
  return access.get(model)?.read;
}

/** Records that a model was staged on a plan. */
export function setStaged(entity: object, plan: PlanIdentity): void {
  access.set(entity, { ...access.get(entity), staged: { plan, entity } });
}

/** Records that a model is of the same version as the one of which it is a copy. */
export function copyProvenance(from: object, to: object): void {
  const provenance = access.get(from);
  if (provenance !== undefined) access.set(to, provenance);
}

/** Records that a model is a read of the version that was staged as another model. */
export function copyStaged(from: object, to: object): void {
  const staged = access.get(from)?.staged;
  if (staged !== undefined) access.set(to, { ...access.get(to), staged });
}

/** The model that was staged as the version of a model; `undefined` if that version is committed. */
export function uncommittedVersion(model: object): object | undefined {
  const staged = access.get(model)?.staged;
  return staged === undefined || staged.plan.isCommitted ? undefined : staged.entity;
}
