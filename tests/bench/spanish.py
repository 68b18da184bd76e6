"""The words of the results in Spanish, for README.es.md."""

from __future__ import annotations

import re

# In this order: what holds other entries comes before them.
WORDS = {
    "Measured on": "Medido el",
    " at (?=[0-9a-f]{7}|no commit)": " en ",
    "on (?=\\d+ cores)": "con ",
    "cores": "núcleos",
    "ratio \\(quartiles\\)": "proporción (cuartiles)",
    "\\| measure \\| beside": "| medida | junto a",
    "\\| goal \\|": "| meta |",
    "lock, read, two durable replaces": "bloquear, leer, dos reemplazos duraderos",
    "APScheduler's add and the C YAML loader": "el alta de APScheduler y el lector de YAML en C",
    "APScheduler alone": "APScheduler solo",
    "one asyncio client": "un cliente de asyncio",
    "the steps before it": "los pasos anteriores",
    "that start": "ese arranque",
    "in flight at the same moment": "en vuelo en el mismo momento",
    "cold (`[^`]+`)": r"\1 en frío",
    "nothing due": "nada vence",
    "one request over loopback": "una petición por loopback",
    "the same request": "la misma petición",
    "the same": "lo mismo",
    "gets ready, does nothing": "se prepara y no hace nada",
    "gets ready, sends nothing": "se prepara y no envía nada",
    "processor for each further KB, last step": "procesador por cada KB más, último paso",
    "warm slice, ledger with": "tramo en caliente, libro de registro con",
    "warm slice": "tramo en caliente",
    "ms a slice": "ms por tramo",
    "kept of it": "que quedan",
    "idle daemon": "demonio en espera",
    "wake-ups": "despertares",
    "memory": "memoria",
    "wall": "reloj",
    "start with ([\\d,]+) jobs until ready": r"arranque con \1 trabajos hasta estar listo",
    "reload of one job among": "recarga de un trabajo entre",
    "once it is seen within a second; 1 job new or changed": "vista en menos de un segundo; 1 trabajo nuevo o cambiado",
    "due in one second, no-op slice: until the last is entered": "vencen en un segundo, tramo vacío: hasta el último",
    "entered, (\\d+) lost": r"empezados, \1 perdidos",
    "seen by the server; none lost": "vistos por el servidor; ninguno perdido",
    "none lost": "ninguno perdido",
    "the start of the process is part of it": "con el arranque del proceso",
    "slices a second, replies at once": "tramos por segundo, respuestas inmediatas",
    "slices an hour": "tramos por hora",
    "slices at once": "tramos a la vez",
    "s replies": "s por respuesta",
    "a second": "por segundo",
    "admissions": "admisiones",
    "slice,": "tramo,",
    "(`status`) of": r"\1 de",
    "\\| with ": "| con ",
    "\\| of ": "| de ",
    "left out": "omitido",
    "jobs": "trabajos",
    "\\bdone\\b": "hecho",
    "at most": "como mucho",
    "missed": "no alcanzada",
    "beside": "junto a",
    "(?<=\\d) to (?=\\d)": " a ",
}


def translated(block: str) -> str:
    """Return a block of results in Spanish; figures, names and code stay as they are."""
    for english, spanish in WORDS.items():
        block = re.sub(english, spanish, block)
    return block
