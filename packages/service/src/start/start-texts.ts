import type { ServiceRole } from '../settings/service-settings.js';
import type { ShardStart } from './until-ready.js';

const opening = 'it is being opened';

/** What the text for the terminal says of a service besides its shards. */
interface ReadyFacts {
  /** The name of the application. */
  readonly name: string;
  readonly role: ServiceRole;
  /** Its address; `undefined` when the process answers no requests. */
  readonly url: string | undefined;
  readonly docsUrl: string | undefined;
  /** Whether everybody on this computer is answered. */
  readonly isOpen: boolean;
  readonly consoleUrl?: string | undefined;
  /** The configuration of the embedded databases. */
  readonly embeddedFile?: string | undefined;
  /** The command line's `doctor`. Default: `npx framework doctor`. */
  readonly doctor: string | undefined;
  /** A first request to try. */
  readonly example?: string | undefined;
}

/**
 * The text for the terminal when a process is ready: its address, the page for operators, the databases, which shards are not ready and
 * why, and a first request to try.
 */
export function readyText(starts: readonly ShardStart[], facts: ReadyFacts): string {
  const { url, docsUrl, isOpen, consoleUrl, embeddedFile, example } = facts;
  const { doctor = 'npx framework doctor' } = facts;
  return [
    '',
    headline(facts, starts),
    '',
    ...(url === undefined ? [] : [`  Address  ${url}`]),
    ...(docsUrl === undefined ? [] : [`  Docs     ${docsUrl}`]),
    ...(consoleUrl === undefined ? [] : [`  Console  ${consoleUrl}`]),
    ...(embeddedFile === undefined ? [] : [`  Operate  ${doctor} --config ${embeddedFile}`]),
    ...(url !== undefined && isOpen
      ? ['  Access   everybody on this computer, without a token: see framework.security.jwt']
      : []),
    ...shardLines(starts),
    ...(example === undefined ? [] : [`  Try      ${example}`]),
    '',
  ].join('\n');
}

/** The text shown while no shard is ready. */
export function waitingText(starts: readonly ShardStart[]): string {
  const shards = starts.map(({ place, reason = opening }) => `shard ${place}: ${reason}`);
  return `Waiting for ${shards.join('; ')}`;
}

/** The text shown when a shard becomes ready later, or the reason why it is not ready changes. */
export function changeText({ place, ready, reason = opening }: ShardStart): string {
  return `Shard ${place} ${ready ? 'is ready' : `is not ready: ${reason}`}`;
}

function headline({ name, role }: ReadyFacts, starts: readonly ShardStart[]): string {
  const kind = role === 'worker' || role === 'relay' ? role : 'service';
  const missingCount = starts.filter(({ ready }) => !ready).length;
  if (missingCount === 0) return `The ${name} ${kind} is ready.`;
  return `The ${name} ${kind} is ready, except for ${missingCount} of its ${starts.length} shards.`;
}

function shardLines(starts: readonly ShardStart[]): readonly string[] {
  return starts.map(({ place, ready, reason = opening }, index) => {
    const state = ready ? '' : `, NOT READY: ${reason}`;
    return `  ${index === 0 ? 'Shards ' : '       '}  ${place}${state}`;
  });
}
