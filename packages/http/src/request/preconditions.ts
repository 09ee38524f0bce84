import { InvalidRequestError } from './invalid-request-error.js';

/** How many versions `If-Match` may list. */
const versionsMax = 32;
const versionTag = /^"([1-9]\d{0,14})"$/;

/** The entity tag of a version: strong, because a version never changes. */
export function entityTag(version: number): string {
  return `"${version}"`;
}

/**
 * The versions of which `If-Match` asks for one; `undefined` when it is missing, or is `*`, which every version meets. Whatever no
 * version has for a tag, such as a weak tag, or `*` in a list, is left out.
 *
 * @throws InvalidRequestError `bad-request` when it lists more than 32
 * @see https://www.rfc-editor.org/rfc/rfc9110#field.if-match
 */
export function expectedVersions(headers: Headers): readonly number[] | undefined {
  const tags = tagsOf(headers, 'if-match');
  if (tags === undefined || isAny(tags)) return undefined;
  if (tags.length <= versionsMax)
    return tags.flatMap((tag) => versionTag.exec(tag)?.slice(1).map(Number) ?? []);
  const message = `must list at most ${versionsMax} entity tags`;
  throw new InvalidRequestError('bad-request', `header/If-Match ${message}`, {
    faults: [{ pointer: 'header/If-Match', message }],
  });
}

/**
 * Whether the client has this version already, as `If-None-Match` says.
 *
 * @see https://www.rfc-editor.org/rfc/rfc9110#field.if-none-match
 */
export function isKnown(headers: Headers, version: number): boolean {
  const tags = tagsOf(headers, 'if-none-match') ?? [];
  return isAny(tags) || tags.some((tag) => tag.replace(/^W\//, '') === entityTag(version));
}

/**
 * Refuses the conditions of a write that nothing would check: the client would rely on them.
 *
 * @param checksVersion whether the write checks the versions of `If-Match`
 * @throws InvalidRequestError `bad-request`
 */
export function refuseUncheckedConditions(headers: Headers, checksVersion: boolean): void {
  const unchecked = [
    ['If-None-Match', 'is for GET and HEAD only'],
    ...(checksVersion ? [] : [['If-Match', 'is not checked by this operation'] as const]),
  ] as const;
  const faults = unchecked
    .filter(([name]) => headers.has(name))
    .map(([name, message]) => ({ pointer: `header/${name}`, message }));
  const [first] = faults;
  if (first === undefined) return;
  throw new InvalidRequestError('bad-request', `${first.pointer} ${first.message}`, { faults });
}

/** Whether the header is `*`. In a list, it is not a condition, but may be a part of a tag that was split at its commas. */
function isAny(tags: readonly string[]): boolean {
  return tags.length === 1 && tags[0] === '*';
}

/** No version's tag has a comma, so that a list can be split at each. */
function tagsOf(headers: Headers, name: string): readonly string[] | undefined {
  return headers
    .get(name)
    ?.split(',')
    .map((tag) => tag.trim());
}

/** Whether a client prefers an answer without a body. The first preference of a name counts. */
export function prefersMinimal(headers: Headers): boolean {
  const preferences = headers.get('prefer')?.split(',') ?? [];
  const first = preferences
    .map((each) => /^\s*return\s*=\s*"?(\w+)"?\s*(;|$)/i.exec(each)?.[1])
    .find(Boolean);
  return first?.toLowerCase() === 'minimal';
}
