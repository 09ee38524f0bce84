import type { MemoryPassage } from '../memory/index.js';
import type { StepLabel, StepOwner } from './scheduler.js';

const uuid = /[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g;

/** What happened in a run, one line for each step, with short names in the place of ids. */
export class Trace {
  readonly #lines: string[] = [];
  readonly #names = new Map<string, string>();

  /** Gives an id a name of its own; others are numbered as they come. */
  name(id: string, name: string): void {
    this.#names.set(id, name);
  }

  add(nowMs: number, owner: StepOwner, label: StepLabel): void {
    const what = typeof label === 'string' ? label : describePassage(label);
    if (what === 'timer') return;
    this.#lines.push(`${nowMs.toFixed(1).padStart(9)} ms  ${owner.name.padEnd(7)} ${this.readable(what)}`);
  }

  /** A text with short names in the place of ids. */
  readable(text: string): string {
    return text.replace(uuid, (id) => {
      const name = this.#names.get(id) ?? `#${this.#names.size + 1}`;
      this.#names.set(id, name);
      return name;
    });
  }

  get lines(): readonly string[] {
    return this.#lines;
  }
}

function describePassage({ operation, shard, way, changes = [], error }: MemoryPassage): string {
  const writes = changes.map((each) => {
    const models = each.changes.map(
      ({ model, expectedVersion }) => `${model.id.value} ${expectedVersion}→${model.version}`,
    );
    return `${each.action.name} ${each.action.id} (${models.join(', ')})`;
  });
  const arrow = way === 'request' ? '→' : '←';
  const failed = error instanceof Error ? ` fails: ${error.message}` : '';
  return `${arrow} (${shard.group}, ${shard.member}) ${[operation, ...writes].join(' ')}${failed}`;
}
