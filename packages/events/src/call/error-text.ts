const charactersMax = 2_000;
const causesMax = 5;
const partsMax = 10;

/**
 * What a failed attempt threw, as operators read it: name, message and causes, at most 2,000 characters.
 *
 * Never throws, and gives text that every database can store, whatever was thrown: recording a failure must not depend on
 * what failed.
 */
export function errorText(thrown: unknown): string {
  const links: string[] = [];
  const seen = new Set<unknown>();
  let link: { readonly value: unknown } | undefined = { value: thrown };
  while (link !== undefined && links.length < causesMax && !seen.has(link.value)) {
    seen.add(link.value);
    links.push(linkText(link.value));
    link = causeOf(link.value);
  }
  return storable(links.join(', caused by '));
}

function linkText(thrown: unknown): string {
  if (!isError(thrown)) return textOf(thrown);
  const text = `${propertyText(thrown, 'name')}: ${propertyText(thrown, 'message')}`;
  const parts = partsOf(thrown);
  return parts.length === 0 ? text : `${text} [${parts.map(partText).join('; ')}]`;
}

/** One of several errors in one, without those that it may hold itself. */
function partText(part: unknown): string {
  return isError(part) ? `${propertyText(part, 'name')}: ${propertyText(part, 'message')}` : textOf(part);
}

/** A proxy may refuse the question. */
function isError(value: unknown): value is Error {
  return attempted(() => value instanceof Error, false);
}

function propertyText(error: Error, property: 'name' | 'message'): string {
  return attempted(() => textOf(error[property]), '(unreadable)');
}

/** What JavaScript says is a text may be anything. */
function textOf(thrown: unknown): string {
  return attempted(() => bounded(String(thrown)), `a thrown ${typeof thrown} that has no text`);
}

function causeOf(thrown: unknown): { readonly value: unknown } | undefined {
  const value = attempted(() => (thrown instanceof Error ? thrown.cause : undefined), undefined);
  return value === undefined ? undefined : { value };
}

function partsOf(error: Error): readonly unknown[] {
  return attempted(
    () => (error instanceof AggregateError ? Array.from(error.errors.slice(0, partsMax) as unknown[]) : []),
    [],
  );
}

/** Long texts are cut before anything else is done with them. */
function bounded(text: string): string {
  return text.slice(0, charactersMax);
}

/** PostgreSQL's text holds neither NUL nor half of a character. */
function storable(text: string): string {
  const cut = bounded(text.replaceAll('\0', ''));
  // The cut itself may have halved a character.
  const whole = cut.length === charactersMax && isHighSurrogate(cut) ? cut.slice(0, -1) : cut;
  return whole.toWellFormed();
}

function isHighSurrogate(text: string): boolean {
  const last = text.charCodeAt(text.length - 1);
  return last >= 0xd800 && last <= 0xdbff;
}

function attempted<T>(work: () => T, otherwise: T): T {
  try {
    return work();
  } catch {
    return otherwise;
  }
}
