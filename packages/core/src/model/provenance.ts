/*
 * What a model knows of its row beyond its fields; copies of the model know it, too.
 *
 * A version number does not identify a version: another action may have committed one with the same number. So a model knows whether an
 * attempt has staged its version. A model that was read from the database has a committed version.
 *
 * A model may hold a value less exactly than its row: without microseconds, or with fewer digits. So a repository may remember for it
 * how the row is stored. Whatever a copy does not change can then be written as it was.
 */

interface Origin {
  /** Identifies the plan on which it was staged, on one shard. */
  readonly plan: object;
  /** The model as it was staged. */
  readonly staged: object;
}

const origins = new WeakMap<object, Origin>();
const committedPlans = new WeakSet();

/** Records that a model was staged on a plan, which an object identifies. */
export function setStaged(staged: object, plan: object): void {
  origins.set(staged, { plan, staged });
}

/** Records that everything is committed that was staged on a plan. */
export function setCommitted(plan: object): void {
  committedPlans.add(plan);
}

/** Records that a model is of the same version as the one of which it is a copy. */
export function copyOrigin(from: object, to: object): void {
  const origin = origins.get(from);
  if (origin !== undefined) origins.set(to, origin);
}

/** The model that was staged as the version of a model; `undefined` if that version is committed. */
export function uncommittedVersion(model: object): object | undefined {
  const origin = origins.get(model);
  return origin === undefined || committedPlans.has(origin.plan) ? undefined : origin.staged;
}

const forms = new WeakMap<object, unknown>();

/** Remembers how the row of a model is stored; only the repository knows what that is. */
export function setStoredForm(model: object, form: unknown): void {
  forms.set(model, form);
}

/** How the row is stored that a model, or the one of which it is a copy, was read from; `undefined` if nothing was remembered. */
export function storedForm(model: object): unknown {
  return forms.get(model);
}

/** Remembers for a model what is remembered for another one. */
export function copyStoredForm(from: object, to: object): void {
  const form = forms.get(from);
  if (form !== undefined) forms.set(to, form);
}
