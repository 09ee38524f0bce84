import type { FaultHarness } from '../faults/fault-harness.js';
import type { DrillScene, DrillStage } from './drill-scene.js';
import type { EmbeddedStage } from './embedded-stage.js';

// The command reads this file for its help, too: code that starts databases and processes is imported only when a fault happens.

/** A fault that the drill causes on the shard (1, 0), and its end. */
export interface Fault<Stage extends DrillStage = DrillStage> {
  readonly name: string;
  readonly what: string;
  /** The shortest time that the fault lasts. */
  readonly lastsMs: number;
  /** Starts the service to break. Default: processes of the service, and a proxy in front of the shard's own server. */
  readonly stage?: () => Promise<Stage>;
  /** Makes transfers to the shard wait before the fault begins, if none is accepted or tried while it lasts. */
  hold?(scene: DrillScene<Stage>): Promise<void>;
  begin(scene: DrillScene<Stage>): Promise<unknown>;
  /** Resolves when the cause is gone; the service must then recover by itself. */
  end(scene: DrillScene<Stage>): Promise<unknown>;
}

const onHarness: readonly Fault<FaultHarness>[] = [
  {
    name: 'missing-shard',
    what: 'the only process that delivers lacks the shard in its configuration, until one that has it is started',
    lastsMs: 10_000,
    begin: async (scene) => {
      const { stage } = scene;
      await stage.stopService();
      await stage.startService('both', 'http');
      await scene.ask(await stage.startProcess('all', 'global'));
    },
    end: async (scene) => {
      await scene.stopAsked();
      await (await scene.stage.startProcess('worker')).printed('is ready');
    },
  },
  {
    name: 'refused',
    what: 'the server refuses connections for two minutes',
    lastsMs: 120_000,
    begin: ({ stage }) => stage.proxy.refuse(),
    end: ({ stage }) => stage.proxy.accept(),
  },
  {
    name: 'silent',
    what: 'the network swallows all packets for half a minute',
    lastsMs: 30_000,
    begin: async ({ stage }) => stage.proxy.silence(),
    end: async ({ stage }) => stage.proxy.resume(),
  },
  {
    name: 'killed',
    what: 'the server is killed with kill -9, and started again',
    lastsMs: 10_000,
    begin: ({ stage }) => stage.killServer(),
    end: ({ stage }) => stage.restartServer(),
  },
  {
    name: 'read-only-server',
    what: 'default_transaction_read_only is on for the server',
    lastsMs: 10_000,
    begin: ({ stage }) => setOnServer(stage, 'alter system set default_transaction_read_only = on'),
    end: ({ stage }) => setOnServer(stage, 'alter system reset default_transaction_read_only'),
  },
  {
    name: 'read-only-database',
    what: 'default_transaction_read_only is on for the database, and its sessions are ended, so that new ones begin with it',
    lastsMs: 10_000,
    begin: async ({ stage }) => {
      await setOnServer(stage, 'alter database mexico set default_transaction_read_only = on');
      const sessions = `select pg_terminate_backend(pid) from pg_stat_activity where datname = 'mexico'`;
      await stage.onServer(sessions, 'postgres');
    },
    end: ({ stage }) => setOnServer(stage, 'alter database mexico reset default_transaction_read_only'),
  },
  {
    name: 'locked-row',
    what: 'somebody holds a lock on the wallet that the waiting transfers go to',
    lastsMs: 10_000,
    begin: (scene) => scene.lock(),
    end: (scene) => scene.unlock(),
  },
  {
    name: 'exchanged-urls',
    what: 'the service is started with the jdbc-urls of its shards swapped, then with the right ones',
    lastsMs: 0,
    hold: (scene) => scene.lock(),
    begin: async (scene) => {
      await scene.unlock();
      await scene.stage.stopService();
      await (await scene.stage.startProcess('all', 'exchanged')).exitCode();
    },
    end: ({ stage }) => stage.startService(),
  },
  {
    name: 'sigterm',
    what: 'the service is stopped while half of some requests has arrived, and started again',
    lastsMs: 0,
    hold: (scene) => scene.lock(),
    begin: async (scene) => {
      await scene.unlock();
      await (await import('./stop-amid-requests.js')).stopAmidRequests(scene.stage);
    },
    end: ({ stage }) => stage.startService(),
  },
];

const embedded: Fault<EmbeddedStage> = {
  name: 'embedded-killed',
  what: 'the embedded server of a start without configuration is killed with kill -9',
  lastsMs: 0,
  stage: async () => (await import('./embedded-stage.js')).EmbeddedStage.start(),
  hold: (scene) => scene.lock(),
  begin: ({ stage }) => stage.killServer(),
  end: ({ stage }) => stage.serverRunsAgain(),
};

/** All faults, in the order in which they happen. */
export const faults: readonly Fault[] = [...onHarness, embedded];

async function setOnServer(stage: FaultHarness, setting: string): Promise<void> {
  await stage.onServer(setting, 'postgres');
  await stage.onServer('select pg_reload_conf()', 'postgres');
}
