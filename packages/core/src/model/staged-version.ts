/*
 * A version number does not identify a version: another action may have committed one with the same number. So a model knows whether an
 * attempt has staged its version, and its copies do. A model that was read from the database has a committed version.
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
