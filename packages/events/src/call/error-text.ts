const charactersMax = 2_000;

/** What a failed attempt threw, as operators read it: name, message and causes, at most 2,000 characters. */
export function errorText(error: unknown): string {
  const links: string[] = [];
  let link: unknown = error;
  for (let depth = 0; depth < 5 && link !== undefined; depth++) {
    links.push(link instanceof Error ? `${link.name}: ${link.message}` : textOf(link));
    link = link instanceof Error ? link.cause : undefined;
  }
  // PostgreSQL's text holds no NUL.
  return links.join(', caused by ').replaceAll('\0', '').slice(0, charactersMax);
}

function textOf(thrown: unknown): string {
  try {
    return String(thrown);
  } catch {
    return `a ${typeof thrown} that has no text`;
  }
}
