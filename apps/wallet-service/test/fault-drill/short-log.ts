const linesMax = 4;
const charactersMax = 300;
const fieldsShown = ['msg', 'handler', 'path', 'reason', 'err', 'error', 'remedy', 'shards', 'shard'];

/** The different messages that processes have logged, each once and shortened. */
export function shortLog(lines: readonly string[]): readonly string[] {
  const byKind = new Map<string, string>();
  for (const line of lines) {
    const text = textOf(line);
    const kind = text.replaceAll(/[0-9a-f-]{36}|\d+/g, '#').slice(0, 60);
    if (text !== '' && !byKind.has(kind)) byKind.set(kind, text);
  }
  return [...byKind.values()].slice(0, linesMax);
}

function textOf(line: string): string {
  if (!line.startsWith('{')) return shortened(line.trim());
  const entry = JSON.parse(line) as Readonly<Record<string, string | readonly string[]>>;
  const shown = fieldsShown.flatMap((field) => entry[field] ?? []);
  return shortened(shown.join(' · '));
}

function shortened(text: string): string {
  return text.length > charactersMax ? `${text.slice(0, charactersMax)} …` : text;
}
