import { setTimeout as pause } from 'node:timers/promises';
import type { Benchmark } from '../benchmark/benchmark.js';
import { measureContenders, median } from '../benchmark/measure-contenders.js';
import { ServiceProcess } from './service-process.js';

const restMs = 5_000;

/** How soon the service on two shards is ready, and how much memory it uses when nothing happens. */
export const serviceStart: Benchmark = {
  name: 'deposits-service-start',
  async run({ server, rounds, say }) {
    const urls = [await server.createDatabase(), await server.createDatabase()];
    const resident: number[] = [];
    const start = {
      name: 'start',
      // The first start, which is not counted, migrates the databases.
      measure: async () => {
        const service = await ServiceProcess.start(urls, 'all');
        await pause(restMs);
        resident.push((await service.residentMB()) ?? Number.NaN);
        await service.stop();
        return service.readyMs / 1_000;
      },
    } as const;
    const measured = await measureContenders([start], { rounds, say });
    const residentMB = median(resident);
    const ready = {
      title: 'start to ready of the service, databases up',
      value: measured.start,
      unit: 's',
      atMost: 1,
      measured,
    };
    if (Number.isNaN(residentMB)) return [ready];
    return [
      ready,
      {
        title: 'resident memory of the service at rest',
        value: residentMB,
        unit: 'MB',
        atMost: 120,
        measured: { residentMB },
      },
    ];
  },
};
