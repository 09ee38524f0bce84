import { CommitOutcomeUnknownError, ShardIdentifier as Shard, type ShardIdentifier } from '@framework/core';
import pg from 'pg';
import { describe, expect, test } from 'vitest';

import { type CommitQuestions, type SentCommit, findCommit } from './commit-outcome.js';
import { HistoryQuestion } from './server-session.js';

const shard = Shard.of(0, 0);
/** Long enough that no answer comes too late, however busy the machine is. */
const waitMs = 60_000;
/** Too short for a commit that is never found. */
const shortMs = 150;

/** The state of the server when it is asked; changed by a test as time passes. */
interface Server {
  timeline: string | null;
  working: boolean;
  logged: boolean;
  /** Called after each answer, with its number from 1. */
  answered?: (count: number) => void;
}

/** Connections to such a server. */
function connectionsTo(server: Server): CommitQuestions & { readonly asked: string[] } {
  const asked: string[] = [];
  const query = async ({ text }: pg.QueryConfig): Promise<unknown> => {
    asked.push(text.includes('pg_stat_activity') ? 'session' : 'log');
    const { timeline, working, logged } = server;
    const answer = text.includes('pg_stat_activity')
      ? { rows: [{ timeline, working }], rowCount: 1 }
      : { rows: [], rowCount: logged ? 1 : 0 };
    server.answered?.(asked.length);
    return answer;
  };
  return {
    asked,
    history: new HistoryQuestion(),
    use: <T>(_shard: ShardIdentifier, work: (client: pg.PoolClient) => Promise<T>) =>
      work({ query } as unknown as pg.PoolClient),
  };
}

function sentOn(timeline: string | undefined): CommitOutcomeUnknownError {
  const session: SentCommit = { server: { pid: 1, started: '1', timeline }, eventId: 'event-1' };
  return new CommitOutcomeUnknownError(shard, 'action-1', { session });
}

const there: Server = { timeline: '7/00000001', working: false, logged: false };

describe('a commit whose answer was lost', () => {
  test('is reported as missing once its process has ended and the log does not contain it', async () => {
    expect(await findCommit(connectionsTo({ ...there }), sentOn('7/00000001'), waitMs)).toBe(false);
  });

  test('is looked for until its process has ended', async () => {
    const server: Server = { ...there, working: true };
    server.answered = (count) => void (server.working = count < 4);
    const connections = connectionsTo(server);
    expect(await findCommit(connections, sentOn('7/00000001'), waitMs)).toBe(false);
    expect(connections.asked).toEqual(['session', 'log', 'session', 'log', 'session', 'log']);
  });

  test('is found when its process ends between the two queries', async () => {
    const server: Server = { ...there, working: true };
    server.answered = () => {
      server.working = false;
      server.logged = true;
    };
    expect(await findCommit(connectionsTo(server), sentOn('7/00000001'), waitMs)).toBe(true);
  });

  test('is not reported as missing by a standby, which may lag behind', async () => {
    const connections = connectionsTo({ ...there, timeline: null });
    const unknown = sentOn('7/00000001');
    await expect(findCommit(connections, unknown, shortMs)).rejects.toBe(unknown);
  });

  test('is found on a standby as soon as the standby has received it', async () => {
    const server: Server = { ...there, timeline: null };
    server.answered = (count) => void (server.logged = count > 2);
    expect(await findCommit(connectionsTo(server), sentOn('7/00000001'), waitMs)).toBe(true);
  });

  test.each(['7/00000002', '8/00000001'])('is not reported as missing on timeline %s', async (timeline) => {
    const connections = connectionsTo({ ...there, timeline });
    const unknown = sentOn('7/00000001');
    await expect(findCommit(connections, unknown, 60_000)).rejects.toBe(unknown);
    expect(connections.asked).toEqual(['session', 'log']);
  });

  test('is found on another timeline whose log contains it', async () => {
    const connections = connectionsTo({ ...there, timeline: '7/00000002', logged: true });
    expect(await findCommit(connections, sentOn('7/00000001'), waitMs)).toBe(true);
  });

  test('is not reported as missing when the server process was never known', async () => {
    const unknown = new CommitOutcomeUnknownError(shard, 'action-1');
    await expect(findCommit(connectionsTo({ ...there }), unknown, shortMs)).rejects.toBe(unknown);
  });
});

describe('a server that hides its history', () => {
  test('is queried in another way after the first refusal', async () => {
    const texts: string[] = [];
    const client = {
      query: async ({ text }: pg.QueryConfig) => {
        texts.push(text);
        if (!text.includes('pg_control_system')) return { rows: [] };
        throw Object.assign(new pg.DatabaseError('not allowed', 1, 'error'), { code: '42501' });
      },
    } as unknown as pg.ClientBase;
    const history = new HistoryQuestion();
    const ask = () => history.ask(client, (timeline) => ({ text: `select ${timeline}` }));
    await ask();
    await ask();
    expect(texts.map((text) => text.includes('pg_postmaster_start_time'))).toEqual([false, true, true]);
  });
});
